variable "table" {
  description = "The table's name"
  type        = string
  default     = "ebbtide"

  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{3,255}$", var.table))
    error_message = "A table has 3 to 255 letters, digits, dots, dashes and underscores."
  }
}

variable "package" {
  description = "The function's package, a zip with the program as bootstrap"
  type        = string
  default     = "../../target/lambda/ebbtide-lambda/bootstrap.zip"
}

variable "architecture" {
  description = "What the program was built for: x86_64 or arm64"
  type        = string
  default     = "x86_64"
}

variable "records_alarm" {
  description = "More records than this in the table are an alarm"
  type        = number
  default     = 10000000
}

variable "alarm_topic" {
  description = "The ARN of the topic that is told of alarms; none, if empty"
  type        = string
  default     = ""
}
