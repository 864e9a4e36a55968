package sos

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
)

// Reason is the reason why a whitelisted connection went directly, that is, without agents.
type Reason string

// The reasons. For the first five, no set-up is tried.
const (
	ReasonSigned        Reason = "signed"
	ReasonStarting      Reason = "starting"
	ReasonSetups        Reason = "setups"
	ReasonClient        Reason = "client"
	ReasonHold          Reason = "hold"
	ReasonQueue         Reason = "queue"
	ReasonServerUnknown Reason = "server-unknown"
	ReasonNoAgent       Reason = "no-agent"
	ReasonNoGain        Reason = "no-gain"
	ReasonNoPath        Reason = "no-path"
	ReasonAgent         Reason = "agent"
	ReasonRules         Reason = "rules"
	ReasonServer        Reason = "server"
	ReasonMoves         Reason = "moves"
)

// remedies holds a remedy for each reason, or the statement that nothing has to be done.
var remedies = map[Reason]string{
	ReasonSigned:        "nothing to do: the ends sign their segments (TCP-MD5 or TCP-AO) with a key that only they have",
	ReasonStarting:      "nothing to do: the controller had just been started",
	ReasonSetups:        "raise max_setups with \"sluice sos config set\", if this many connections at once are wanted",
	ReasonClient:        "raise max_setups_per_client with \"sluice sos config set\", or find out why the client opens so many connections",
	ReasonHold:          "the switch or the controller is overloaded with first packets: make the whitelist narrower",
	ReasonQueue:         "fewer connections at once, or a faster control network: see the steps of \"sluice sos session\"",
	ReasonServerUnknown: "check that the server is up, and that it or its router is on a switch of this controller",
	ReasonNoAgent:       "look at \"sluice sos agents list\": one agent near each end has to be up, placed and not full",
	ReasonNoGain:        "nothing to do if both ends are at one site; otherwise add an agent near each end",
	ReasonNoPath:        "look at \"sluice network links\": the path between an end and its agent is broken",
	ReasonAgent:         "look at the agent's log, and at its route to the end and to its peer",
	ReasonRules:         "look at the controller's log for what the switch refuses, and at the room in its tables",
	ReasonServer:        "nothing to do in SOS: the server would have refused, or not answered, without it as well",
	ReasonMoves:         "have an agent at the switch of a border port of the mobile network (handover.roots), and switches with several tables there",
}

// Set-ups return these errors, so that reasonOf can tell the reasons of failures apart.
var (
	errQueue    = errors.New("too many connections at once")
	errNoServer = errors.New("no place of the server is known")
	errRules    = errors.New("rules were not written")
)

// reasonOf returns the reason for the error of a failed set-up.
func reasonOf(err error) Reason {
	kinds := []struct {
		err    error
		reason Reason
	}{
		{errQueue, ReasonQueue},
		{errMobile, ReasonMoves},
		{errNoServer, ReasonServerUnknown},
		{agents.ErrNone, ReasonNoAgent},
		{ErrNoGain, ReasonNoGain},
		{errRules, ReasonRules},
		{network.ErrNoPath, ReasonNoPath},
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.reason
		}
	}
	switch control.CodeOf(err) {
	case control.CodeRefused, control.CodeTimeout, control.CodeUnreachable:
		return ReasonServer
	default:
		return ReasonAgent
	}
}

// Direct counts the whitelisted connections that went directly for one reason.
type Direct struct {
	Reason Reason    `json:"reason" enum:"signed,starting,setups,client,hold,queue,server-unknown,no-agent,no-gain,no-path,agent,rules,server,moves"`
	Count  uint64    `json:"count" doc:"Connections, since this controller was started"`
	Latest time.Time `json:"latest"`
	Cause  string    `json:"cause" doc:"What happened to the latest of them"`
	Remedy string    `json:"remedy" doc:"What helps"`
}

// directs holds the counts by reason.
type directs map[Reason]*Direct

// add counts one more connection, and replaces the cause that is kept for its reason.
func (d directs) add(why Reason, cause string, now time.Time) {
	x := d[why]
	if x == nil {
		x = &Direct{Reason: why, Remedy: remedies[why]}
		d[why] = x
	}
	x.Count++
	x.Latest, x.Cause = now, cause
}

// list returns the counts, the most frequent reason first.
func (d directs) list() []Direct {
	out := make([]Direct, 0, len(d))
	for _, x := range d {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b Direct) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
