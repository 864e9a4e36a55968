package handover

import (
	"errors"
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/domain"
	"github.com/sluice-net/sluice/services/handover/registry"
	"github.com/sluice-net/sluice/services/handover/route"
)

// Errors of operations, besides those of the registry.
var (
	errUnknown    = errors.New("no such device")
	errNowhere    = errors.New("the device is nowhere now: it has no lease, or has not been seen since its lease began")
	errThere      = errors.New("the device is there already")
	errNoCoverage = errors.New("no coverage is configured: see handover.coverage in the configuration")
	errNotPort    = errors.New("not a port where a device can be")
	errNoDaemon   = errors.New("no daemon of the device listens for orders")
)

// apiHandlers implements the operations of the API.
type apiHandlers struct {
	*core
	placement *placement
	guards    *guards
	packets   *packetHandler
	predictor *predictor
	daemons   *daemons
}

// register adds the service's operations and metrics to the API.
func (s *apiHandlers) register(a *api.API) {
	a.Metrics().MustRegister(s.metrics)
	r := kit.NewREST(a, Name).AwaitChanges(s.loaded, s.ctx.Done())
	kit.Show(r, "status", "Show state and errors", s.status)
	kit.Register(r, http.MethodGet, "stats", "Show times and changes of the latest handovers", s.getStats)
	kit.Register(r, http.MethodGet, "borders", "List the border ports, where the mobility network meets the rest", s.getBorders)

	s.registerDeclared(r)
	kit.Register(r, http.MethodGet, "leases", "List the leases", s.getLeases)
	kit.Register(r, http.MethodDelete, "leases/{name}", "End a device's lease and remove its rules", s.deleteLease)

	kit.Register(r, http.MethodGet, "handovers", "List the records of handovers, the latest first", s.getHandovers)
	kit.Register(r, http.MethodGet, "handovers/{id}", "Show one record", s.getHandover)
	kit.Register(r, http.MethodPost, "devices/{name}/move", "Order a device to move", s.postMove)
	kit.Register(r, http.MethodPost, "devices/{name}/prepare", "Prepare a place for a device", s.postPrepare)
	kit.Register(r, http.MethodDelete, "devices/{name}/prepare", "Cancel a preparation", s.deletePrepare)
	kit.Register(r, http.MethodPost, "devices/{name}/announce", "Announce a device to a neighbouring domain", s.postAnnounce)
	kit.Register(r, http.MethodDelete, "devices/{name}/announce", "Withdraw an announcement", s.deleteAnnounce)

	kit.Register(r, http.MethodGet, "coverage", "List what the attachment points cover", s.getCoverage)
	kit.Register(r, http.MethodGet, "positions", "List the latest reports of positions, with the predictions made from them", s.getPositions)
	kit.Register(r, http.MethodPost, "positions", "Report positions and movements of devices", s.postPositions)
	s.daemons.register(a, r)
	if s.domain != nil {
		s.domain.Register(a)
	}
}

// problem turns an error into a problem document. location and value name the part of the request
// that it is about.
func problem(err error, location string, value any) error {
	is := func(all ...error) bool {
		for _, e := range all {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case is(errUnknown, kit.ErrUnknown, registry.ErrUnknown, domain.ErrNoDevice):
		return api.NotFound(location, value, "nothing of that name is there; list them to see what is")
	case is(domain.ErrNoNeighbour):
		return api.NotFound("body.domain", value, err.Error())
	case is(errNowhere, errThere, errNoCoverage, errNoDaemon, registry.ErrFull, registry.ErrNoLease, domain.ErrNotHere, domain.ErrMoving):
		return api.Conflict(location, value, err.Error())
	case is(errNotPort, route.ErrInvalid):
		return api.Invalid("body.port", value, err.Error())
	case is(network.ErrRefused):
		return api.Refused("a switch has refused the rules, nothing was changed: %v", err)
	}
	return kit.Problem(err, location, value)
}
