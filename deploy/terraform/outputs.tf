output "store" {
  description = "The store's URL, for EBBTIDE_STORE"
  value       = local.store
}

output "table_arn" {
  description = "For the policy of what serves: GetItem, BatchGetItem, PutItem, UpdateItem, DeleteItem, Query and ConditionCheckItem on it"
  value       = aws_dynamodb_table.ebbtide.arn
}
