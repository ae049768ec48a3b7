# Alarms, and a dashboard.

locals {
  alarms = {
    sweep-errors = {
      description = "The sweep has failed"
      namespace   = "AWS/Lambda", metric = "Errors", dimensions = { FunctionName = local.function }
      statistic   = "Sum", period = 86400, periods = 1, threshold = 0
      comparison  = "GreaterThanThreshold", missing = "breaching"
    }
    sweep-silent = {
      description = "No sweep has reported for two days"
      namespace   = "Ebbtide", metric = "Removed", dimensions = { Function = local.function }
      statistic   = "SampleCount", period = 86400, periods = 2, threshold = 1
      comparison  = "LessThanThreshold", missing = "breaching"
    }
    table-growth = {
      description = "The table holds more records than it should, as the sweep counted them"
      namespace   = "Ebbtide", metric = "Records", dimensions = { Function = local.function }
      statistic   = "Maximum", period = 86400, periods = 1, threshold = var.records_alarm
      comparison  = "GreaterThanThreshold", missing = "breaching"
    }
    ttl-silent = {
      description = "The engine's TTL has deleted nothing for three days"
      namespace   = "AWS/DynamoDB", metric = "TimeToLiveDeletedItemCount", dimensions = { TableName = var.table }
      statistic   = "Sum", period = 86400, periods = 3, threshold = 1
      comparison  = "LessThanThreshold", missing = "breaching"
    }
    overdue = {
      description = "Something expired more than four days ago and is still stored"
      namespace   = "Ebbtide", metric = "OldestOverdue", dimensions = { Function = local.function }
      statistic   = "Maximum", period = 86400, periods = 1, threshold = 345600
      comparison  = "GreaterThanThreshold", missing = "breaching"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "ebbtide" {
  for_each            = local.alarms
  alarm_name          = "${var.table}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.dimensions
  statistic           = each.value.statistic
  period              = each.value.period
  evaluation_periods  = each.value.periods
  threshold           = each.value.threshold
  comparison_operator = each.value.comparison
  treat_missing_data  = each.value.missing
  alarm_actions       = local.topics
}

resource "aws_cloudwatch_dashboard" "ebbtide" {
  dashboard_name = var.table
  dashboard_body = jsonencode({
    widgets = [
      for index, widget in [
        { title = "Deleted by TTL, a day", stat = "Sum", period = 86400, metrics = [
          ["AWS/DynamoDB", "TimeToLiveDeletedItemCount", "TableName", var.table],
        ] },
        { title = "Records, and those overdue", stat = "Maximum", period = 86400, metrics = [
          ["Ebbtide", "Records", "Function", local.function],
          ["Ebbtide", "Overdue", "Function", local.function],
        ] },
        { title = "Written, a minute", stat = "Sum", period = 60, metrics = [
          ["AWS/DynamoDB", "ConsumedWriteCapacityUnits", "TableName", var.table],
          ["AWS/DynamoDB", "ThrottledRequests", "TableName", var.table],
        ] },
        { title = "The sweep", stat = "Sum", period = 86400, metrics = [
          ["AWS/Lambda", "Invocations", "FunctionName", local.function],
          ["AWS/Lambda", "Errors", "FunctionName", local.function],
          ["Ebbtide", "Removed", "Function", local.function],
          ["Ebbtide", "More", "Function", local.function],
          ["Ebbtide", "WalkProgress", "Function", local.function, { stat = "Maximum", yAxis = "right" }],
        ] },
      ] :
      {
        type       = "metric", width = 12, height = 6, x = 12 * (index % 2), y = 6 * floor(index / 2)
        properties = merge(widget, { region = data.aws_region.here.name })
      }
    ]
  })
}
