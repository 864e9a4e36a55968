// Package agentapi is the part of the control API that only SOS agents have: the types and the
// client of the operations on sessions. Package control contains the common part of all agents.
// Start reading at Client.
//
//	POST   /v1/sessions              PrepareRequest -> PrepareReply
//	POST   /v1/sessions/{id}/commit  dial the server, or connect to the peer
//	DELETE /v1/sessions/{id}         abort: RST to the end host, forget
//	GET    /v1/sessions              []Session
//	GET    /v1/sessions/{id}         Session
//	GET    /v1/paths                 []PathStatus
//	PUT    /v1/paths/limits          Limits -> []PathStatus of the limited paths
//	PUT    /v1/peers/expected        WarmPeers: accept connections before a session needs them
//	PUT    /v1/peers/warm            WarmPeers -> []WarmStatus: open such connections
//
// Setting a session up takes two steps. Prepare may go to both agents at the
// same time, because an agent's data ports are constant and part of its Status.
// Commit goes to both once the switches have their rules: at the server's agent
// it dials the server, at the client's agent it opens the connections between
// the agents, so that they are established when the client's first byte arrives. A
// session that is not committed, or whose client does not connect, expires by itself.
package agentapi
