package plugin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
)

// What an operation can fail with, besides what the registry says.
var (
	errUnknown    = errors.New("no such device")
	errNowhere    = errors.New("the device is nowhere now: it has no lease, or has not been seen since its lease began")
	errThere      = errors.New("the device is there already")
	errNoCoverage = errors.New("no coverage is configured: see handover.coverage in the configuration")
	errNotPort    = errors.New("not a port where a device can be")
	errNoDaemon   = errors.New("no daemon of the device listens for orders")
)

// Register adds the service's operations and metrics to the API.
func (s *Service) Register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	h := a.Huma()
	register(s, h, http.MethodGet, "status", "Show state and errors", s.getStatus)
	register(s, h, http.MethodGet, "stats", "Show times and changes of the latest handovers", s.getStats)
	register(s, h, http.MethodGet, "roots", "List the roots, where the mobility network meets the rest", s.getRoots)

	register(s, h, http.MethodGet, "classes", "List the classes of devices", s.getClasses)
	register(s, h, http.MethodPut, "classes/{name}", "Add or change a class", s.putClass)
	register(s, h, http.MethodDelete, "classes/{name}", "Remove a class that nothing refers to", s.deleteClass)
	register(s, h, http.MethodGet, "pools", "List the pools with their use", s.getPools)
	register(s, h, http.MethodPut, "pools/{name}", "Add or change a pool", s.putPool)
	register(s, h, http.MethodDelete, "pools/{name}", "Remove a pool to which no device belongs", s.deletePool)

	register(s, h, http.MethodGet, "devices", "List the devices", s.getDevices)
	register(s, h, http.MethodGet, "devices/{id}", "Show a device", s.getDevice)
	register(s, h, http.MethodPut, "devices/{id}", "Register a device, or change it", s.putDevice)
	register(s, h, http.MethodDelete, "devices/{id}", "Remove a device with its lease and its rules", s.deleteDevice)
	register(s, h, http.MethodGet, "leases", "List the leases", s.getLeases)
	register(s, h, http.MethodDelete, "leases/{id}", "End a device's lease and remove its rules", s.deleteLease)

	register(s, h, http.MethodGet, "handovers", "List what happened to devices, the latest first", s.getHandovers)
	register(s, h, http.MethodGet, "handovers/{id}", "Show one record", s.getHandover)
	register(s, h, http.MethodPost, "devices/{id}/move", "Order a device to move", s.postMove)
	register(s, h, http.MethodPost, "devices/{id}/prepare", "Prepare a place for a device", s.postPrepare)
	register(s, h, http.MethodDelete, "devices/{id}/prepare", "Take back what was prepared", s.deletePrepare)
	register(s, h, http.MethodPost, "devices/{id}/announce", "Announce a device to a neighbouring domain", s.postAnnounce)
	register(s, h, http.MethodDelete, "devices/{id}/announce", "Take back what was announced", s.deleteAnnounce)

	register(s, h, http.MethodGet, "coverage", "List what the attachment points cover", s.getCoverage)
	register(s, h, http.MethodGet, "positions", "List the latest reports of positions, and what follows from them", s.getPositions)
	register(s, h, http.MethodPost, "positions", "Report positions and movements of devices", s.postPositions)
	s.registerOrders(a)
	if s.domain != nil {
		s.domain.Register(a)
	}
}

// register adds one operation below /api/v1/handover. Its identifier follows from
// method and path.
func register[I, O any](s *Service, h huma.API, method, path, summary string, f func(context.Context, *I) (*O, error)) {
	op := operation(method, path, summary)
	if method != http.MethodGet {
		op.Middlewares = huma.Middlewares{s.whenLoaded(h)}
	}
	huma.Register(h, op, f)
}

// whenLoaded has a change wait until the registry is loaded: one that came in
// between would be there twice.
func (s *Service) whenLoaded(h huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		select {
		case <-s.loaded:
			next(ctx)
		case <-s.ctx.Done():
			_ = huma.WriteErr(h, ctx, http.StatusServiceUnavailable, "the service has ended")
		case <-ctx.Context().Done(): // nobody waits for an answer
		}
	}
}

func operation(method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: operationID(method, path), Method: method, Path: api.Prefix + "/" + Name + "/" + path,
		Summary: summary, Tags: []string{Name},
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}
}

func operationID(method, path string) string {
	words := strings.NewReplacer("/", "-", "{", "", "}", "").Replace(path)
	return Name + "-" + words + "-" + strings.ToLower(method)
}

// body wraps what an operation answers.
type body[T any] struct{ Body T }

type nothing struct{}

// ByID is the path of what is done to one device. (Exported, or it could not be embedded in an input.)
type ByID struct {
	ID string `path:"id" doc:"Name of the device"`
}

// ByName is the path of what is done to one class or pool.
type ByName struct {
	Name string `path:"name" doc:"Its name"`
}

// refuse turns faults into a problem document, or nil. The name stands in the
// path, everything else in the body.
func refuse(faults []Fault) error {
	fields := make([]api.Field, len(faults))
	for i, f := range faults {
		location := "body." + f.Field
		switch {
		case f.Field == "name" || f.Field == "id":
			location = "path." + f.Field
		case strings.HasPrefix(f.Field, "["): // the body is a list
			location = "body" + f.Field
		}
		fields[i] = api.Field{Location: location, Value: f.Value, Want: f.Want}
	}
	return api.InvalidFields(fields)
}

// answer turns an error into a problem document. location and value name what
// the request was about.
func answer(err error, location string, value any) error {
	if err == nil {
		return nil
	}
	if faults := faultsOf(err); faults != nil {
		return refuse(faults)
	}
	is := func(all ...error) bool {
		for _, e := range all {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(errUnknown, registry.ErrUnknown, domain.ErrNoDevice):
		return api.NotFound(location, value, "nothing of that name is there; list them to see what is")
	case is(domain.ErrNoNeighbour):
		return api.NotFound("body.domain", value, err.Error())
	case is(errNowhere, errThere, errNoCoverage, errNoDaemon, registry.ErrInUse, registry.ErrFull, registry.ErrNoLease, domain.ErrNotHere, domain.ErrMoving):
		return api.Conflict(location, value, err.Error())
	case is(errNotPort, route.ErrInvalid):
		return api.Invalid("body.port", value, err.Error())
	case is(network.ErrRefused):
		return api.Refused("a switch has refused the rules, nothing was changed: %v", err)
	default:
		return api.Unavailable("nothing was changed: %v", err)
	}
}
