// Package control is how a controller speaks to the agents of a service: the control
// server that each of them has, and the client of it. Both are an agent's whole life but for
// what it does: credentials, state, load, draining, events, metrics.
//
//	GET  /v1/status   Status
//	POST /v1/drain    DrainRequest -> Status
//	GET  /v1/events   Event, one JSON object a line, at least one a second
//	GET  /metrics     Prometheus text format
//
// A service adds its own operations with [Handle]. Every refusal is an RFC 9457 problem
// document, here *[Problem], whose Code is one of the Code constants.
//
// The server is for the controller alone: it asks for a certificate of that role, and what
// comes from others is bounded. Package agents is the controller's side.
package control
