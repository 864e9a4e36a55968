package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Field is one invalid field: its location ("body.client", "path.id", "query.limit"), the given
// value, and what would be right.
type Field struct {
	Location string
	Value    any
	Want     string
}

const refusedWhole = "the request was refused, nothing was changed"

// Invalid returns an error that refuses a request for one field: 422 with the field's location,
// its value and what would be right.
func Invalid(location string, value any, want string) error {
	return InvalidFields([]Field{{location, value, want}})
}

// InvalidFields returns an error that refuses a request for several fields, or nil if the list
// is empty.
func InvalidFields(fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	details := make([]error, 0, len(fields))
	for _, f := range fields {
		details = append(details, &huma.ErrorDetail{Message: f.Want, Location: f.Location, Value: f.Value})
	}
	return huma.NewError(http.StatusUnprocessableEntity, refusedWhole, details...)
}

// Combine returns one error for all faults of a request: it has the status of the first, and the
// details of all. It returns nil if every error is nil, and an error that is not of this package as it
// is.
func Combine(faults ...error) error {
	var all []*huma.ErrorModel
	for _, f := range faults {
		var p *huma.ErrorModel
		switch {
		case f == nil:
		case errors.As(f, &p):
			all = append(all, p)
		default:
			return f
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	out := &huma.ErrorModel{Status: all[0].Status, Title: all[0].Title, Detail: refusedWhole}
	for _, p := range all {
		out.Errors = append(out.Errors, p.Errors...)
	}
	return out
}

// NotFound returns the error for something that does not exist: 404.
func NotFound(location string, value any, what string) error {
	return problem(http.StatusNotFound, location, value, what)
}

// Conflict returns the error for a request that conflicts with the present state: 409.
func Conflict(location string, value any, what string) error {
	return problem(http.StatusConflict, location, value, what)
}

// Forbidden returns the error for a request that the sender may not make with this value at the
// location: 403.
func Forbidden(location string, value any, what string) error {
	return problem(http.StatusForbidden, location, value, what)
}

// TooMany returns the error for a sender of too many or too large requests: 429.
func TooMany(location string, value any, what string) error {
	return problem(http.StatusTooManyRequests, location, value, what)
}

// Outdated returns the error for a conditional request whose condition no longer holds: 412.
func Outdated(location string, value any, what string) error {
	return problem(http.StatusPreconditionFailed, location, value, what)
}

// Refused returns the error for a request that the network or a device has refused: 502.
func Refused(format string, args ...any) error {
	return huma.NewError(http.StatusBadGateway, fmt.Sprintf(format, args...))
}

// Unavailable returns the error for a request that needs something which is not available now:
// 503.
func Unavailable(format string, args ...any) error {
	return huma.NewError(http.StatusServiceUnavailable, fmt.Sprintf(format, args...))
}

func problem(status int, location string, value any, what string) error {
	return huma.NewError(status, what, &huma.ErrorDetail{Message: what, Location: location, Value: value})
}

// WriteProblem answers with a problem document. It is for handlers outside huma.
func WriteProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// If this fails, the client has disconnected.
	_ = json.NewEncoder(w).Encode(p)
}
