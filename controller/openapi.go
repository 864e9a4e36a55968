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

// documentable is a section of a service that does not offer all of its API by default.
type documentable interface {
	// ForDocument has the service offer all of its API.
	ForDocument()
}

// OpenAPI returns the document of the whole API of a controller with these services, in YAML,
// made without running anything.
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
