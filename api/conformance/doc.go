// Package conformance holds the API against its OpenAPI document: schemathesis
// generates requests from the document, right and wrong ones, sends them to the real
// program with something in it, and says where an answer is not what the document
// promises. "make test-api" runs it.
package conformance
