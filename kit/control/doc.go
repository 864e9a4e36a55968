// Package control is the protocol between a controller and the agents of a service. It has the
// control server of an agent and the controller's client for it. They cover everything that is
// common to all agents: certificates, status, load, draining, events and metrics.
//
//	GET  /v1/status   Status
//	POST /v1/drain    DrainRequest -> Status
//	GET  /v1/events   Event, one JSON object a line, at least one a second
//	GET  /metrics     Prometheus text format
//
// A service adds its own operations with [Handle]. Every refusal is an RFC 9457 problem document,
// here *[Problem], whose Code is one of the Code constants.
//
// The server serves only the controller: it requires a certificate with that role, and bounds what
// it reads from others. Package agents is the controller's side.
package control
