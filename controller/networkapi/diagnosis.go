package networkapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/diagnosis"
)

// Diagnosis is an examination of the network: what it has found, once it has ended.
type Diagnosis struct {
	Number     int        `json:"number" doc:"Counts the examinations since the controller began"`
	MTU        int        `json:"mtu" doc:"What the ends of links were taken to say, in bytes of an IP packet"`
	Running    bool       `json:"running"`
	Began      time.Time  `json:"began"`
	Ended      *time.Time `json:"ended,omitempty" doc:"Missing while it runs"`
	Links      int        `json:"links" doc:"Links that have been examined, each both ways"`
	Frames     int        `json:"frames" doc:"Frames that were sent over them"`
	MostFrames int        `json:"most_frames" doc:"Frames that were sent over one link, at most"`
	Findings   []Finding  `json:"findings" doc:"Empty while it runs"`
}

// Finding is one fault of the network.
type Finding struct {
	Fault  string `json:"fault" example:"one-way" doc:"Name of the fault; docs/how-to/troubleshoot.md lists them"`
	Level  string `json:"level" enum:"fail,warn" doc:"fail: packets are lost or changed; warn: something that some networks need does not work, or is not known"`
	From   *Place `json:"from,omitempty" doc:"Where: a port, with port 0 a switch; missing if it is no place in the network"`
	To     *Place `json:"to,omitempty" doc:"Where the direction of a link leads that has the fault"`
	Found  string `json:"found" doc:"What is wrong, in words"`
	Remedy string `json:"remedy" doc:"What to do about it"`
}

func diagnosisOf(r diagnosis.Report) Diagnosis {
	out := Diagnosis{
		Number: r.Number, MTU: r.MTU, Running: r.Ended.IsZero(), Began: r.Began.UTC(), Ended: timeOf(r.Ended),
		Links: r.Links, Frames: r.Frames, MostFrames: r.MostFrames, Findings: make([]Finding, len(r.Findings)),
	}
	for i, f := range r.Findings {
		out.Findings[i] = Finding{
			Fault: string(f.Fault), Level: string(f.Level), From: knownPlace(f.From), To: knownPlace(f.To), Found: f.Found, Remedy: f.Remedy,
		}
	}
	return out
}

// knownPlace is nil for no place.
func knownPlace(at network.PortRef) *Place {
	if at == (network.PortRef{}) {
		return nil
	}
	return new(placeOf(at))
}

type diagnoseInput struct {
	Body struct {
		MTU int `json:"mtu,omitempty" default:"1500" minimum:"576" maximum:"9216" doc:"What the ends of links say that they carry, in bytes of an IP packet"`
	}
}

// registerDiagnosis adds the operations on examinations.
func registerDiagnosis(a *api.API, s *server) {
	huma.Register(a.Huma(), huma.Operation{
		OperationID: "network-diagnosis-post", Method: http.MethodPost, Path: api.Prefix + "/network/diagnosis", DefaultStatus: http.StatusAccepted,
		Summary: "Begin to look for what is wrong with the network's links, by at most 100 frames over each",
		Tags:    []string{"network"}, Errors: []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.diagnose)
	get(a, "network/diagnosis", "Show what the latest examination of the network has found", s.diagnosis)
}

func (s *server) diagnose(_ context.Context, in *diagnoseInput) (*body[Diagnosis], error) {
	r, err := s.core.Doctor().Diagnose(in.Body.MTU)
	switch {
	case errors.Is(err, network.ErrBusy):
		return nil, api.Conflict("body", r.Number, "an examination runs already; a GET of the same address tells how it ends")
	case err != nil:
		return nil, api.Unavailable("examining the network: %v", err)
	}
	return &body[Diagnosis]{diagnosisOf(r)}, nil
}

func (s *server) diagnosis(context.Context, *nothing) (*body[Diagnosis], error) {
	r, ok := s.core.Doctor().Diagnosis()
	if !ok {
		return nil, api.NotFound("path", nil, "the network has not been examined since the controller began; a POST to the same address begins")
	}
	return &body[Diagnosis]{diagnosisOf(r)}, nil
}
