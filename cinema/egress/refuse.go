package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/sluice-net/sluice/api/client"
)

// refusal is why a request is not done, as RFC 9457 has it.
type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Field names the part of the request that is wrong, where one is.
	Field string `json:"field,omitempty"`
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s: %s", r.Status, r.Field, r.Detail) }

func refused(status int, field, format string, args ...any) *refusal {
	return &refusal{Title: http.StatusText(status), Status: status, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Refusals that are told from others.
var (
	errReplaced = refused(http.StatusConflict, "", "another change of channel came after this one")
	errGone     = refused(http.StatusGone, "", "the session is over")
	errFull     = refused(http.StatusServiceUnavailable, "", "this gateway takes no more viewers, and no other has room")
)

// asRefusal is an error as a viewer is told of it.
func asRefusal(err error) *refusal {
	if r, known := errors.AsType[*refusal](err); known {
		return r
	}
	return refused(http.StatusInternalServerError, "", "%v", err)
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, err error) {
	r := asRefusal(err)
	h := w.Header()
	switch r.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="cinema"`)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	h.Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_ = json.NewEncoder(w).Encode(r) // the client has gone, which it will notice
}

// full says whether the controller refuses a viewer because its gateway has no room.
func full(err error) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusConflict && about(p, "body.gateway")
}

// unknown says whether the controller does not have one of the channels that were asked for.
func unknown(err error, index int) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusUnprocessableEntity && about(p, fmt.Sprintf("body.channels[%d]", index))
}

// wrongPassword says whether the controller refuses a viewer for its password.
func wrongPassword(err error) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusForbidden && about(p, "body.password")
}

// about says whether a field is among what is wrong.
func about(p *client.Problem, field string) bool {
	return slices.ContainsFunc(p.Errors, func(f client.Field) bool { return f.Location == field })
}

// ofController is what a viewer is told of the controller's answer to what it wanted: a channel,
// which was asked for first.
func ofController(err error, channel string) error {
	p, answered := errors.AsType[*client.Problem](err)
	if !answered {
		if cause, is := errors.AsType[*refusal](err); is {
			return cause
		}
		why := "does not answer"
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrUnreachable) {
			why = "gives no answer that is understood"
		}
		return refused(http.StatusServiceUnavailable, "", "the controller %s; what is watched goes on, and channels can be changed when it is back", why)
	}
	switch p.Status {
	case http.StatusForbidden:
		if wrongPassword(err) {
			return refused(http.StatusUnauthorized, "Authorization", "channel %q wants its password", channel)
		}
	case http.StatusUnprocessableEntity:
		if unknown(err, 0) {
			return refused(http.StatusNotFound, "channel", "there is no channel %q", channel)
		}
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return refused(p.Status, "channel", "%s", p.Error())
	}
	return refused(http.StatusBadGateway, "", "the controller refuses what this gateway asks: %s", p.Error())
}
