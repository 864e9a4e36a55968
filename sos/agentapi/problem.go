package agentapi

import (
	"errors"
	"fmt"
)

// Code is the machine-readable kind of a Problem.
type Code string

// The codes. The first group answers prepare, the second commit.
const (
	CodeFull       Code = "full"        // no room for another session
	CodeDraining   Code = "draining"    // the agent takes no new sessions
	CodeDuplicate  Code = "duplicate"   // the session id is known already
	CodeBadRequest Code = "bad-request" // the request is wrong; Field says where
	CodeNoRoute    Code = "no-route"    // no route to the end host
	CodeNoPeer     Code = "no-peer"     // no route to the peer, or it cannot be used

	CodeRefused     Code = "refused"     // the server answered with RST
	CodeTimeout     Code = "timeout"     // the server did not answer in time
	CodeUnreachable Code = "unreachable" // no host or network there, says the network

	CodeNotFound Code = "not-found" // no such session
	CodeInternal Code = "internal"  // a fault of the agent; Detail says which
)

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   Code   `json:"code"`
	// Field names the part of the request that is wrong, where one is.
	Field string `json:"field,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string {
	s := p.Title
	if p.Field != "" {
		s = fmt.Sprintf("%s: %s", s, p.Field)
	}
	if p.Detail != "" {
		s = fmt.Sprintf("%s: %s", s, p.Detail)
	}
	return fmt.Sprintf("%s (%s)", s, p.Code)
}

// CodeOf returns the code of the problem in err's chain, or "" when there is none.
func CodeOf(err error) Code {
	var p *Problem
	if errors.As(err, &p) {
		return p.Code
	}
	return ""
}
