package handover

import (
	"context"
	"slices"
	"strconv"

	"github.com/sluice-net/sluice/kit"
)

// handoversInput filters the list of records.
type handoversInput struct {
	Device string `query:"device" doc:"Only records of this device"`
	Kind   string `query:"kind" enum:"attach,move,prepare,detach,reroute" doc:"Only records of this kind"`
	Result string `query:"result" enum:"done,failed" doc:"Only records with this result"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100000" default:"1000" doc:"Maximum number of records, the latest first"`
}

func (s *apiHandlers) getHandovers(_ context.Context, in *handoversInput) (*kit.Body[[]Record], error) {
	return &kit.Body[[]Record]{Body: s.records(*in)}, nil
}

// records returns the records that match, the latest first.
func (s *apiHandlers) records(in handoversInput) []Record {
	out := []Record{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placement.history.latest(func(r *Record) bool {
		if (in.Device == "" || r.Device == in.Device) && (in.Kind == "" || string(r.Kind) == in.Kind) && (in.Result == "" || r.Result == in.Result) {
			out = append(out, *r)
		}
		return in.Limit == 0 || len(out) < in.Limit
	})
	return out
}

// byNumber names a record.
type byNumber struct {
	ID string `path:"id" maxLength:"20" doc:"Number of the record"`
}

func (s *apiHandlers) getHandover(_ context.Context, in *byNumber) (*kit.Body[Record], error) {
	id, err := strconv.ParseUint(in.ID, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.placement.history.at(id); err == nil && r != nil {
		return &kit.Body[Record]{Body: *r}, nil
	}
	return nil, problem(errUnknown, "path.id", in.ID)
}

// Quantiles holds three quantiles of a distribution.
type Quantiles struct {
	P50 Duration `json:"p50"`
	P99 Duration `json:"p99"`
	Max Duration `json:"max"`
}

// Stats summarises the attachments and moves whose records are kept.
type Stats struct {
	Handovers int                  `json:"handovers" doc:"Attachments and moves whose records are kept"`
	Failed    int                  `json:"failed"`
	Moves     int                  `json:"moves"`
	Seamless  int                  `json:"seamless" doc:"Moves in which packets went to both places"`
	Prepared  int                  `json:"prepared" doc:"Moves to a place that had been prepared"`
	Changes   Changes              `json:"changes" doc:"Rules changed by all of them; switches: the maximum of one"`
	Parts     map[string]Quantiles `json:"parts"`
}

func (s *apiHandlers) getStats(context.Context, *kit.Nothing) (*kit.Body[Stats], error) {
	st := Stats{Parts: map[string]Quantiles{}}
	parts := map[string][]Duration{}
	for _, r := range s.records(handoversInput{}) {
		if r.Kind != KindAttach && r.Kind != KindMove {
			continue
		}
		st.Handovers++
		if r.Result != ResultDone {
			st.Failed++
			continue
		}
		if r.Kind == KindMove {
			st.Moves++
		}
		if r.Bicast {
			st.Seamless++
		}
		if r.Prepared {
			st.Prepared++
		}
		st.Changes.add(r.Changes)
		p := r.Parts
		for name, d := range map[string]Duration{
			"t_a": p.Ta, "t_d": p.Td, "t_f": p.Tf, "t_e": p.Te, "t_c": p.Tc, "queue": p.Queue, "store": p.Store, "trigger_to_rules": p.Trigger,
		} {
			parts[name] = append(parts[name], d)
		}
	}
	for name, all := range parts {
		slices.Sort(all)
		st.Parts[name] = Quantiles{P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
	}
	return &kit.Body[Stats]{Body: st}, nil
}
