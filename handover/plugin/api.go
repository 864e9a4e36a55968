package plugin

import (
	"errors"
	"net/http"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/handover/route"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service"
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
	r := service.NewREST(a, Name).AwaitChanges(s.loaded, s.ctx.Done())
	service.Register(r, http.MethodGet, "status", "Show state and errors", s.getStatus)
	service.Register(r, http.MethodGet, "stats", "Show times and changes of the latest handovers", s.getStats)
	service.Register(r, http.MethodGet, "roots", "List the roots, where the mobility network meets the rest", s.getRoots)

	service.Register(r, http.MethodGet, "classes", "List the classes of devices", s.getClasses)
	service.Register(r, http.MethodPut, "classes/{name}", "Add or change a class", s.putClass)
	service.Register(r, http.MethodDelete, "classes/{name}", "Remove a class that nothing refers to", s.deleteClass)
	service.Register(r, http.MethodGet, "pools", "List the pools with their use", s.getPools)
	service.Register(r, http.MethodPut, "pools/{name}", "Add or change a pool", s.putPool)
	service.Register(r, http.MethodDelete, "pools/{name}", "Remove a pool to which no device belongs", s.deletePool)

	service.Register(r, http.MethodGet, "devices", "List the devices", s.getDevices)
	service.Register(r, http.MethodGet, "devices/{id}", "Show a device", s.getDevice)
	service.Register(r, http.MethodPut, "devices/{id}", "Register a device, or change it", s.putDevice)
	service.Register(r, http.MethodDelete, "devices/{id}", "Remove a device with its lease and its rules", s.deleteDevice)
	service.Register(r, http.MethodGet, "leases", "List the leases", s.getLeases)
	service.Register(r, http.MethodDelete, "leases/{id}", "End a device's lease and remove its rules", s.deleteLease)

	service.Register(r, http.MethodGet, "handovers", "List what happened to devices, the latest first", s.getHandovers)
	service.Register(r, http.MethodGet, "handovers/{id}", "Show one record", s.getHandover)
	service.Register(r, http.MethodPost, "devices/{id}/move", "Order a device to move", s.postMove)
	service.Register(r, http.MethodPost, "devices/{id}/prepare", "Prepare a place for a device", s.postPrepare)
	service.Register(r, http.MethodDelete, "devices/{id}/prepare", "Take back what was prepared", s.deletePrepare)
	service.Register(r, http.MethodPost, "devices/{id}/announce", "Announce a device to a neighbouring domain", s.postAnnounce)
	service.Register(r, http.MethodDelete, "devices/{id}/announce", "Take back what was announced", s.deleteAnnounce)

	service.Register(r, http.MethodGet, "coverage", "List what the attachment points cover", s.getCoverage)
	service.Register(r, http.MethodGet, "positions", "List the latest reports of positions, and what follows from them", s.getPositions)
	service.Register(r, http.MethodPost, "positions", "Report positions and movements of devices", s.postPositions)
	s.registerOrders(a, r)
	if s.domain != nil {
		s.domain.Register(a)
	}
}

// ByID is the path of what is done to one device. (Exported, or it could not be embedded in an input.)
type ByID struct {
	ID string `path:"id" doc:"Name of the device"`
}

// refuse turns faults into a problem document, or nil. The name stands in the
// path, everything else in the body.
func refuse(faults service.Faults) error {
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
