package controller

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/store/memstore"
)

// documentable is implemented by the section of a service that offers only a part of its API with
// default settings.
type documentable interface {
	// ForDocument changes the settings so that the service offers all of its API.
	ForDocument()
}

// OpenAPI returns the OpenAPI document, in YAML, of the whole API of a controller with these
// services. It runs nothing.
func OpenAPI(services []kit.Definition) (string, error) {
	cfg := config.DefaultController(kit.Sections(services))
	for _, s := range cfg.Services {
		if d, ok := s.Section.(documentable); ok {
			d.ForDocument()
		}
	}
	c := &Controller{opts: Options{Services: services}, cfg: cfg, log: slog.New(slog.DiscardHandler), store: memstore.New(), bus: event.NewBus(1, 16)}
	var err error
	if c.net, err = network.New(network.Config{}); err != nil {
		return "", fmt.Errorf("controller: %w", err)
	}
	c.databases = ovsdb.NewManager(ovsdb.ManagerOptions{Log: c.log})
	c.api = api.New(api.Options{Version: "1", Bus: c.bus, Log: c.log})
	c.register()
	if err := c.makeServices(); err != nil {
		return "", err
	}
	document, err := c.api.Huma().OpenAPI().YAML()
	if err != nil {
		return "", fmt.Errorf("controller: write the OpenAPI document: %w", err)
	}
	return string(document), c.close()
}

// describeTypes adds the schemas of types that do not describe themselves to the OpenAPI document.
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
