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

// refusal is the error of a refused request, in the format of RFC 9457.
type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Field names the invalid part of the request, if there is one.
	Field string `json:"field,omitempty"`
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s: %s", r.Status, r.Field, r.Detail) }

func newRefusal(status int, field, format string, args ...any) *refusal {
	return &refusal{Title: http.StatusText(status), Status: status, Field: field, Detail: fmt.Sprintf(format, args...)}
}

// Refusals with which callers compare an error.
var (
	errReplaced = newRefusal(http.StatusConflict, "", "another change of channel came after this one")
	errGone     = newRefusal(http.StatusGone, "", "the session is over")
	errFull     = newRefusal(http.StatusServiceUnavailable, "", "this gateway takes no more viewers, and no other has room")
)

// asRefusal converts an error to the refusal that the viewer sees.
func asRefusal(err error) *refusal {
	if r, known := errors.AsType[*refusal](err); known {
		return r
	}
	return newRefusal(http.StatusInternalServerError, "", "%v", err)
}

// writeRefusal answers a request with an error, as a problem document (RFC 9457).
func writeRefusal(w http.ResponseWriter, err error) {
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
	_ = json.NewEncoder(w).Encode(r) // an error means that the client has gone
}

// isGatewayFull reports whether the controller has refused a viewer because its gateway has no
// room.
func isGatewayFull(err error) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusConflict && hasField(p, "body.gateway")
}

// isUnknownChannel reports whether the controller has refused a request because it does not know the
// channel with this index in the request.
func isUnknownChannel(err error, index int) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusUnprocessableEntity && hasField(p, fmt.Sprintf("body.channels[%d]", index))
}

// isWrongPassword reports whether the controller has refused a viewer's password.
func isWrongPassword(err error) bool {
	p, answered := errors.AsType[*client.Problem](err)
	return answered && p.Status == http.StatusForbidden && hasField(p, "body.password")
}

// hasField reports whether a field is among the problem's errors.
func hasField(p *client.Problem, field string) bool {
	return slices.ContainsFunc(p.Errors, func(f client.Field) bool { return f.Location == field })
}

// controllerRefusal converts the error of a request to the controller to the error that the viewer
// sees. channel is the first channel of the request.
func controllerRefusal(err error, channel string) error {
	p, answered := errors.AsType[*client.Problem](err)
	if !answered {
		if cause, ok := errors.AsType[*refusal](err); ok {
			return cause
		}
		why := "does not answer"
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrUnreachable) {
			why = "gives no answer that is understood"
		}
		return newRefusal(http.StatusServiceUnavailable, "", "the controller %s; what is watched goes on, and channels can be changed when it is back", why)
	}
	switch p.Status {
	case http.StatusForbidden:
		if isWrongPassword(err) {
			return newRefusal(http.StatusUnauthorized, "Authorization", "channel %q wants its password", channel)
		}
	case http.StatusUnprocessableEntity:
		if isUnknownChannel(err, 0) {
			return newRefusal(http.StatusNotFound, "channel", "there is no channel %q", channel)
		}
	case http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return newRefusal(p.Status, "channel", "%s", p.Error())
	}
	return newRefusal(http.StatusBadGateway, "", "the controller refuses what this gateway asks: %s", p.Error())
}
