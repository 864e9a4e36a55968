// Package rule holds the data by which an owner declares what it wants in the
// switches: rules in the stages of the pipeline, groups, meters, and the cookie that
// carries owner and generation. It is plain data; package ledger compares it
// and package network makes it live.
package rule
