package handover

import (
	"net/http"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit"
)

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
