package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Field is one field that is wrong: where it stands ("body.client",
// "path.id", "query.limit"), what was given, and what would be right.
type Field struct {
	Location string
	Value    any
	Want     string
}

// Invalid refuses a request for one field: 422 with the field's location, its
// value and what would be right.
func Invalid(location string, value any, want string) error {
	return InvalidFields([]Field{{location, value, want}})
}

// InvalidFields refuses a request for several fields at once. It returns nil
// if the list is empty.
func InvalidFields(fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	details := make([]error, 0, len(fields))
	for _, f := range fields {
		details = append(details, &huma.ErrorDetail{Message: f.Want, Location: f.Location, Value: f.Value})
	}
	return huma.NewError(http.StatusUnprocessableEntity, "the request was refused, nothing was changed", details...)
}

// NotFound says that what the location names does not exist: 404.
func NotFound(location string, value any, what string) error {
	return problem(http.StatusNotFound, location, value, what)
}

// Conflict says that the request does not fit the present state: 409.
func Conflict(location string, value any, what string) error {
	return problem(http.StatusConflict, location, value, what)
}

// Forbidden says that who asks may not have what the location names: 403.
func Forbidden(location string, value any, what string) error {
	return problem(http.StatusForbidden, location, value, what)
}

// TooMany says that who asks has asked too often, or too much at once: 429.
func TooMany(location string, value any, what string) error {
	return problem(http.StatusTooManyRequests, location, value, what)
}

// Outdated says that what a request is conditional on is not so any more: 412.
func Outdated(location string, value any, what string) error {
	return problem(http.StatusPreconditionFailed, location, value, what)
}

// Refused says that the network or a device declined what the request asked for: 502.
func Refused(format string, args ...any) error {
	return huma.NewError(http.StatusBadGateway, fmt.Sprintf(format, args...))
}

// Unavailable says that something the request needs is not there now: 503.
func Unavailable(format string, args ...any) error {
	return huma.NewError(http.StatusServiceUnavailable, fmt.Sprintf(format, args...))
}

func problem(status int, location string, value any, what string) error {
	return huma.NewError(status, what, &huma.ErrorDetail{Message: what, Location: location, Value: value})
}

// WriteProblem answers with a problem document. It is for handlers beside
// huma.
func WriteProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	// The client is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(p)
}
