// Package conformance tests whether the API behaves as its OpenAPI document says. The tool
// schemathesis generates valid and invalid requests from the document, sends them to a
// controller that holds some objects, and reports answers that the document does not describe.
// "make test-api" runs the test.
package conformance
