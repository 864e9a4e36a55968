package control

import (
	"errors"
	"fmt"
	"net/http"
)

// Code is the machine-readable kind of a Problem.
type Code string

// The codes are for requests in general, then for new work, and then for what new work needs.
const (
	CodeBadRequest Code = "bad-request" // the request is wrong; Field says where
	CodeNotFound   Code = "not-found"   // nothing has this name
	CodeInternal   Code = "internal"    // a fault of the agent; Detail describes it

	CodeFull      Code = "full"      // no room for another
	CodeDraining  Code = "draining"  // the agent accepts no new work
	CodeDuplicate Code = "duplicate" // it already exists

	CodeNoRoute     Code = "no-route"    // no route to the end host
	CodeNoPeer      Code = "no-peer"     // no route to the peer, or it cannot be used
	CodeRefused     Code = "refused"     // the server refused the connection
	CodeTimeout     Code = "timeout"     // the server did not answer in time
	CodeUnreachable Code = "unreachable" // the network reported the host or network as unreachable
)

// statuses maps codes to HTTP statuses. Other codes have the status 500.
var statuses = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeNotFound: http.StatusNotFound, CodeDuplicate: http.StatusConflict,
	CodeFull: http.StatusServiceUnavailable, CodeDraining: http.StatusServiceUnavailable,
	CodeNoRoute: http.StatusBadGateway, CodeNoPeer: http.StatusBadGateway,
	CodeRefused: http.StatusBadGateway, CodeUnreachable: http.StatusBadGateway, CodeTimeout: http.StatusGatewayTimeout,
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   Code   `json:"code"`
	// Field names the part of the request that is wrong. It is empty if no single part is.
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
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Code
	}
	return ""
}

// AsProblem returns the problem in err's chain, or an internal problem with err's text.
func AsProblem(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	return &Problem{Title: "agent failed", Code: CodeInternal, Detail: err.Error()}
}

// BadRequest returns the problem of a wrong field.
func BadRequest(field, format string, args ...any) error {
	return &Problem{Title: "wrong request", Code: CodeBadRequest, Field: field, Detail: fmt.Sprintf(format, args...)}
}
