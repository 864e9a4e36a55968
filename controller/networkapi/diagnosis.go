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

// Diagnosis is an examination of the network, with its findings once it has ended.
type Diagnosis struct {
	Number     int        `json:"number" doc:"Number of the examination since the start of the controller"`
	MTU        int        `json:"mtu" doc:"Largest IP packet that links should carry, in bytes"`
	Running    bool       `json:"running"`
	Began      time.Time  `json:"began"`
	Ended      *time.Time `json:"ended,omitempty" doc:"End of the examination; missing while it runs"`
	Links      int        `json:"links" doc:"Number of examined links, each in both directions"`
	Frames     int        `json:"frames" doc:"Number of frames that were sent over the links"`
	MostFrames int        `json:"most_frames" doc:"Largest number of frames that were sent over one link"`
	Findings   []Finding  `json:"findings" doc:"Faults; empty while the examination runs"`
}

// Finding is one fault of the network.
type Finding struct {
	Fault  string `json:"fault" example:"one-way" doc:"Name of the fault; docs/how-to/troubleshoot.md lists them"`
	Level  string `json:"level" enum:"fail,warn" doc:"fail: packets are lost or changed; warn: something that some networks need does not work, or is not known"`
	From   *Place `json:"from,omitempty" doc:"Place of the fault: a port, or a switch if the port is 0; missing if the fault has no place in the network"`
	To     *Place `json:"to,omitempty" doc:"Other end of the direction of a link that has the fault"`
	Found  string `json:"found" doc:"Description of the fault"`
	Remedy string `json:"remedy" doc:"Remedy for the fault"`
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

// knownPlace returns a place, or nil for the zero place.
func knownPlace(at network.PortRef) *Place {
	if at == (network.PortRef{}) {
		return nil
	}
	return new(placeOf(at))
}

type diagnoseInput struct {
	Body struct {
		MTU int `json:"mtu,omitempty" default:"1500" minimum:"576" maximum:"9216" doc:"Largest IP packet that links should carry, in bytes"`
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
