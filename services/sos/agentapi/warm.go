package agentapi

import "net/netip"

// WarmPeer is a peer with which an agent has connections before a session needs them. One of the
// two agents opens the connections, as the client's agent does in a session, and the other one
// accepts them. They prove to each other that they hold Key, in the same way as in a session.
type WarmPeer struct {
	ID     SessionID `json:"id"` // is to the connections what the ID of a session is
	Key    Key       `json:"key"`
	Peer   Peer      `json:"peer"`   // without ports at the agent that accepts
	Params Params    `json:"params"` // of the sessions for which the connections are meant
	// Paths holds the controller's knowledge about the paths to the peer, as in a PrepareRequest.
	Paths []Path `json:"paths,omitempty"`
	// Renew makes the agent that opens connections replace those that no session has used, because
	// the paths turned out to carry more than was known when the connections were opened.
	Renew bool `json:"renew,omitempty"`
}

// WarmPeers lists all peers that an agent has in one of the two roles. It replaces the earlier list
// of that role, and expires after Lifetime, so that an agent whose controller has ended closes the
// connections that no session has used.
type WarmPeers struct {
	Peers    []WarmPeer `json:"peers"`    // at most MaxWarmPeers
	Lifetime Duration   `json:"lifetime"` // above zero, at most MaxWarmLifetime
}

// These bounds apply to WarmPeers.
const (
	MaxWarmPeers    = 32
	MaxWarmPaths    = 8 // data ports of a peer
	MaxWarmLifetime = 10 * MaxLimitLifetime
)

// WarmStatus is the result of opening connections to one peer.
type WarmStatus struct {
	Peer   netip.Addr `json:"peer"`
	Ready  int        `json:"ready"`  // idle connections to the peer
	Opened int        `json:"opened"` // those of them that were opened now
	Error  string     `json:"error,omitempty"`
}
