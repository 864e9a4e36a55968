// Package rule holds the data by which an owner declares what it wants in the switches: rules in
// the stages of the pipeline, groups, meters, and the cookie that contains owner and generation.
// Package ledger compares this data with what switches have, and package network sends the
// difference. Start reading with pipeline.go for tables and stages, and with rule.go.
package rule
