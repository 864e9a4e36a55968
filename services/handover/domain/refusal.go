package domain

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Code is the reason why a message was refused, in a form for the program at the other end.
type Code string

// The codes.
const (
	// CodeReplay: the message was used before, is too old, or is out of order.
	CodeReplay Code = "replay"
	// CodeSender: the sender is no neighbour, or not the one it claims to be.
	CodeSender Code = "unknown-sender"
	// CodeMalformed: the message is not valid by itself.
	CodeMalformed Code = "malformed"
	// CodeNotYours: the sender may not say this about the device.
	CodeNotYours Code = "not-yours"
	// CodePrefix: the sender may not bring a device with this address.
	CodePrefix Code = "prefix"
	// CodeTaken: an address of the device belongs to another host.
	CodeTaken Code = "taken"
	// CodeEvidence: nothing shows that the device is where the sender says.
	CodeEvidence Code = "no-evidence"
	// CodeUnknown: the receiver knows no such device or no such move.
	CodeUnknown Code = "unknown"
	// CodeHere: the device is in the receiving domain.
	CodeHere Code = "here"
	// CodeBusy: another move of the device is under way, or too many are.
	CodeBusy Code = "busy"
	// CodeFailed: the receiver of the message could not do its part now.
	CodeFailed Code = "failed"
)

// Codes lists all codes.
func Codes() []Code {
	return []Code{CodeReplay, CodeSender, CodeMalformed, CodeNotYours, CodePrefix, CodeTaken, CodeEvidence, CodeUnknown, CodeHere, CodeBusy, CodeFailed}
}

// retryable reports whether the same message may be accepted later.
func (c Code) retryable() bool { return c == CodeBusy || c == CodeFailed || c == CodeReplay }

// known reports whether the code is one of ours: a neighbour may send anything.
func (c Code) known() bool { return slices.Contains(Codes(), c) }

// status returns the HTTP status of the code.
func (c Code) status() int {
	switch c {
	case CodeSender, CodeNotYours, CodePrefix, CodeEvidence:
		return http.StatusForbidden
	case CodeMalformed:
		return http.StatusUnprocessableEntity
	case CodeUnknown:
		return http.StatusNotFound
	case CodeFailed:
		return http.StatusServiceUnavailable
	default:
		return http.StatusConflict
	}
}

// Schema returns the list of all codes, for the OpenAPI document.
func (Code) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString, Description: "Why, for the program at the other end"}
	for _, c := range Codes() {
		s.Enum = append(s.Enum, string(c))
	}
	return s
}

// Refusal is a problem document with a code.
type Refusal struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   Code   `json:"code"`
	// Evidence shows, with CodeHere, that the device is where the refusal says.
	Evidence *Evidence `json:"evidence,omitempty"`
}

var (
	_ huma.StatusError       = (*Refusal)(nil)
	_ huma.ContentTypeFilter = (*Refusal)(nil)
)

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%s (%s)", r.Detail, r.Code) }

// GetStatus implements huma.StatusError.
func (r *Refusal) GetStatus() int { return r.Status }

// ContentType implements huma.ContentTypeFilter.
func (r *Refusal) ContentType(string) string { return "application/problem+json" }

// refuse returns a refusal.
func refuse(code Code, format string, args ...any) *Refusal {
	status := code.status()
	return &Refusal{Status: status, Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...), Code: code}
}

// codeOf returns the code of a refusal, or "" for another error.
func codeOf(err error) Code {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Code
	}
	return ""
}

// refusalOf turns an error of a Host into a refusal.
func refusalOf(err error) *Refusal {
	switch r, ok := errors.AsType[*Refusal](err); {
	case ok:
		return r
	case errors.Is(err, ErrTaken):
		return refuse(CodeTaken, "%v", ErrTaken)
	case errors.Is(err, ErrNoEvidence):
		return refuse(CodeEvidence, "%v", ErrNoEvidence)
	case errors.Is(err, ErrNoDevice):
		return refuse(CodeUnknown, "%v", ErrNoDevice)
	}
	// Internal errors are for our log, not for the neighbour.
	return refuse(CodeFailed, "the domain could not do its part")
}
