# A table for Ebbtide with TTL, the daily sweep as a function, and what watches over both.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.40"
    }
  }
}

data "aws_region" "here" {}

locals {
  function = "${var.table}-sweep"
  store    = "dynamodb:${aws_dynamodb_table.ebbtide.name}?region=${data.aws_region.here.name}"
  topics   = var.alarm_topic == "" ? [] : [var.alarm_topic]
}

resource "aws_dynamodb_table" "ebbtide" {
  name                        = var.table
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = true

  attribute {
    name = "pk"
    type = "B"
  }

  attribute {
    name = "sk"
    type = "B"
  }

  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_cloudwatch_log_group" "sweep" {
  name              = "/aws/lambda/${local.function}"
  retention_in_days = 30
}

data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "sweep" {
  statement {
    sid       = "Sweep"
    actions   = ["dynamodb:Scan", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:DeleteItem"]
    resources = [aws_dynamodb_table.ebbtide.arn]
  }

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.sweep.arn}:*"]
  }
}

resource "aws_iam_role" "sweep" {
  name               = local.function
  assume_role_policy = data.aws_iam_policy_document.assume.json
}

resource "aws_iam_role_policy" "sweep" {
  name   = "sweep"
  role   = aws_iam_role.sweep.id
  policy = data.aws_iam_policy_document.sweep.json
}

resource "aws_lambda_function" "sweep" {
  function_name    = local.function
  description      = "Removes index records whose record is gone, and reports what is overdue"
  filename         = var.package
  source_code_hash = filebase64sha256(var.package)
  runtime          = "provided.al2023"
  handler          = "bootstrap"
  architectures    = [var.architecture]
  memory_size      = 256
  timeout          = 900
  role             = aws_iam_role.sweep.arn

  # One at a time: a second would find the first one's turn in the table, and end.
  reserved_concurrent_executions = 1

  environment {
    variables = {
      EBBTIDE_STORE = local.store
    }
  }

  depends_on = [aws_cloudwatch_log_group.sweep]
}

resource "aws_cloudwatch_event_rule" "daily" {
  name                = local.function
  description         = "Once a day, at three in the morning UTC"
  schedule_expression = "cron(0 3 * * ? *)"
}

resource "aws_cloudwatch_event_target" "sweep" {
  rule = aws_cloudwatch_event_rule.daily.name
  arn  = aws_lambda_function.sweep.arn

  retry_policy {
    maximum_retry_attempts       = 2
    maximum_event_age_in_seconds = 3600
  }
}

resource "aws_lambda_permission" "daily" {
  statement_id  = "daily"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.sweep.function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.daily.arn
}

resource "aws_cloudwatch_event_rule" "continue" {
  name                = "${local.function}-continue"
  description         = "Goes on with a sweep that its time limit has ended, and does nothing otherwise"
  schedule_expression = "rate(15 minutes)"
}

resource "aws_cloudwatch_event_target" "continue" {
  rule  = aws_cloudwatch_event_rule.continue.name
  arn   = aws_lambda_function.sweep.arn
  input = jsonencode({ continue = true })

  retry_policy {
    maximum_retry_attempts       = 0
    maximum_event_age_in_seconds = 600
  }
}

resource "aws_lambda_permission" "continue" {
  statement_id  = "continue"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.sweep.function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.continue.arn
}
