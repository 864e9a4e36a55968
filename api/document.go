package api

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// problemType is the media type of all refusals (RFC 9457).
const problemType = "application/problem+json"

// always are the statuses with which this package may refuse a request to any
// operation before the operation is asked: without credentials, with those of another
// role, with a parameter that is none, while the service reads its store; and for a
// fault of the controller.
var always = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
	http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// ofBodies are those that a request with a body may get besides: no JSON, too slow, too
// large, another media type.
var ofBodies = []int{
	http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
}

// describeRefusals says what an operation can be refused with before it is asked, and by
// the header which says what would help.
func (a *API) describeRefusals(_ *huma.OpenAPI, op *huma.Operation) {
	codes := slices.Clone(always)
	if op.RequestBody != nil {
		codes = append(codes, ofBodies...)
	}
	delete(op.Responses, "default") // huma's, where it knows of no error
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
