package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/qos/match"
)

// Base is the path of the service.
const Base = api.Prefix + "/qos/"

// Operation describes one operation, its path below Base. more are statuses that it may
// fail with besides those of all.
func Operation(id, method, path, summary string, more ...int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: Base + path, Summary: summary, Tags: []string{"qos"},
		Errors: append([]int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable}, more...),
	}
}

// Body is an input or an answer that is a document.
type Body[T any] struct{ Body T }

// Nothing is an input or an answer that is empty.
type Nothing struct{}

// ByName is the path of what is done to one class or definition.
type ByName struct {
	Name string `path:"name" doc:"Its name"`
}

// Refuse makes a problem document of what is wrong with a request.
func Refuse(faults []match.Fault) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		fields[i] = api.Field{Location: "body." + f.Field, Value: f.Value, Want: f.Want}
	}
	return api.InvalidFields(fields)
}
