// Package agentapi is the control API of the SOS agent: its types, its problem
// codes and a client. The agent serves it over HTTPS with mutual TLS; the
// controller's plugin is the only client it accepts.
//
//	POST   /v1/sessions              PrepareRequest -> PrepareReply
//	POST   /v1/sessions/{id}/commit  dial the server, or arm the client side
//	DELETE /v1/sessions/{id}         abort: RST to the end host, forget
//	GET    /v1/sessions              []Session
//	GET    /v1/sessions/{id}         Session
//	GET    /v1/status                Status
//	POST   /v1/drain                 DrainRequest -> Status
//	GET    /v1/events                Event, one JSON object a line, at least one a second
//	GET    /metrics                  Prometheus text format
//
// Every refusal is an RFC 9457 problem document, here *Problem, whose Code is
// one of the Code constants.
//
// Setting a session up takes two steps. Prepare may go to both agents at the
// same time, because an agent's data ports are constant and part of its Status.
// Commit goes to both once the switches have their rules: at the server's agent
// it dials the server, at the client's agent it opens the connections between
// the agents, so that they stand when the client's first byte comes. A session
// that is not committed, or whose client does not come, expires by itself.
package agentapi
