package api

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// problemType is the media type of all refusals (RFC 9457).
const problemType = "application/problem+json"

// commonStatuses lists the statuses with which this package may refuse a request to any
// operation before the operation runs: no credentials, credentials of another role, an unknown
// parameter, a fault of the controller, and a service that is still loading.
var commonStatuses = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// bodyStatuses lists the statuses with which a request may be refused for its body: the body is
// invalid JSON, too slow, too large, or of another media type.
var bodyStatuses = []int{
	http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
}

// describeRefusals documents the statuses with which an operation may be refused before it runs,
// and their headers.
func (a *API) describeRefusals(_ *huma.OpenAPI, op *huma.Operation) {
	codes := slices.Clone(commonStatuses)
	if op.RequestBody != nil {
		codes = append(codes, bodyStatuses...)
	}
	delete(op.Responses, "default") // huma adds it if it knows of no error
	for _, code := range codes {
		text := strconv.Itoa(code)
		if op.Responses[text] == nil {
			op.Responses[text] = &huma.Response{Description: http.StatusText(code), Content: map[string]*huma.MediaType{problemType: {Schema: a.problemSchema()}}}
		}
	}
	op.Responses["401"].Headers = map[string]*huma.Param{"WWW-Authenticate": {
		Description: "The scheme that is expected", Schema: &huma.Schema{Type: huma.TypeString},
	}}
	op.Responses["503"].Headers = map[string]*huma.Param{"Retry-After": {
		Description: "Seconds after which it is worth asking again, if that is known", Schema: &huma.Schema{Type: huma.TypeInteger},
	}}
}

func (a *API) problemSchema() *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(problemModel, true, "Error")
}
