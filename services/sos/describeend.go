package sos

import "github.com/sluice-net/sluice/services/sos/agentapi"

// endedOrderly reports whether both agents are sure that their end hosts know of the end.
func endedOrderly(ended map[agentapi.Role]agentapi.SessionRecord) bool {
	for _, r := range roles {
		switch ended[r].Reason {
		case "", agentapi.ReasonPeerLost, agentapi.ReasonFailed:
			return false
		}
	}
	return true
}

// describeEnd describes how a session ended, from the final records of its agents.
func describeEnd(ended map[agentapi.Role]agentapi.SessionRecord) string {
	client, server := ended[agentapi.RoleClient], ended[agentapi.RoleServer]
	pick := func(r agentapi.SessionRecord) string {
		if r.Detail != "" {
			return string(r.Reason) + ": " + r.Detail
		}
		return string(r.Reason)
	}
	switch {
	case client.Reason == server.Reason, server.Reason == "":
		return pick(client)
	case client.Reason == "":
		return pick(server)
	}
	// One agent knows the cause, the other only that its peer gave up.
	for _, r := range []agentapi.SessionRecord{client, server} {
		switch r.Reason {
		case agentapi.ReasonPeerReset, agentapi.ReasonPeerLost, agentapi.ReasonClosed, agentapi.ReasonAborted:
		default:
			return pick(r)
		}
	}
	return pick(client) + "; server's agent: " + pick(server)
}
