package controller

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/openflow"
)

// describeTypes tells the OpenAPI document how types are written that know nothing of
// it.
func describeTypes(a *api.API) {
	schemas := a.Huma().OpenAPI().Components.Schemas
	schemas.RegisterTypeAlias(reflect.TypeFor[openflow.MAC](), reflect.TypeFor[macText]())
	schemas.RegisterTypeAlias(reflect.TypeFor[openflow.DatapathID](), reflect.TypeFor[dpidText]())
}

type macText struct{}

// Schema implements huma.SchemaProvider.
func (macText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "mac", MinLength: new(17)}
}

type dpidText struct{}

// Schema implements huma.SchemaProvider.
func (dpidText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "dpid", MinLength: new(16)}
}
