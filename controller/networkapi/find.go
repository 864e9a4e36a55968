package networkapi

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
)

// Paths holds the operations below /api/v1/path.
type Paths struct {
	// Available returns the bandwidth that the promises of services, which are reserved bandwidths,
	// leave free on a link. If it is nil, the measured available bandwidth is used. Set it before
	// the API runs.
	Available func(network.Link) uint64

	server *server
}

func registerPaths(a *api.API, s *server) *Paths {
	p := &Paths{server: s}
	get(a, "path/find", "Find the best path that meets constraints", p.find,
		"Any mix of constraints with one objective. The answer tells by which algorithm it was found, whether a better path can exist, and by how much it could be better.",
		"That there is no path is an answer too: `found` is false, and `reason` says what cannot be met.")
	get(a, "path/explain", "Show the network as a path search sees it", p.explain,
		"The answer of `find`, and every link with what is known of it and why it was out.")
	return p
}

// pathInput is a path request. Parameters that are left out set no constraint.
type pathInput struct {
	From      string   `query:"from" required:"true" format:"place" doc:"Start of the path: the IP or MAC address of a known host, or SWITCH/PORT" example:"10.0.0.1"`
	To        string   `query:"to" required:"true" format:"place" doc:"End of the path: the IP or MAC address of a known host, or SWITCH/PORT" example:"00000000000000a2/1"`
	Bandwidth uint64   `query:"min_bandwidth" maximum:"1000000000000000" doc:"Minimum bandwidth that every link must have available, in bits per second" example:"10000000"`
	Delay     float64  `query:"max_delay" minimum:"0" maximum:"3600000" doc:"Maximum delay of the whole path in milliseconds; links without a measurement are excluded"`
	Jitter    float64  `query:"max_jitter" minimum:"0" maximum:"3600000" doc:"Maximum jitter of the whole path in milliseconds; links without a measurement are excluded"`
	Loss      float64  `query:"max_loss" minimum:"0" maximum:"0.999999" doc:"Share of packets that the path may lose, from 0 (no bound) to 1"`
	Objective string   `query:"objective" enum:"hops,delay,loss,jitter,widest" default:"hops" doc:"What to optimise among the paths that meet the constraints"`
	Limit     float64  `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"Time limit in milliseconds for problems whose exact solution may take exponential time"`
	Exclude   []string `query:"exclude" maxItems:"100" format:"place" doc:"Links that the path must not use, by the port from which they leave, SWITCH/PORT"`
}

// FoundPath is the answer to a path request.
type FoundPath struct {
	Found     bool    `json:"found"`
	Reason    string  `json:"reason,omitempty" doc:"Why there is no path"`
	Undecided bool    `json:"undecided,omitempty" doc:"The limit was reached before a path was found or proved not to exist"`
	Hops      []Hop   `json:"hops" doc:"Empty if there is no path"`
	Bandwidth uint64  `json:"available_bits_per_second,omitempty" doc:"Available bandwidth of the narrowest link; missing if it is not known, and for a path within one switch"`
	Delay     float64 `json:"delay_milliseconds" doc:"Sum over the links that have been measured"`
	Jitter    float64 `json:"jitter_milliseconds" doc:"Sum over the links that have been measured"`
	Loss      float64 `json:"loss" doc:"Share of packets that the path loses"`
	// Unmeasured is the number of links of the path that are missing in the sums.
	Unmeasured int     `json:"unmeasured_links,omitempty" doc:"Number of links of the path whose delay is not known"`
	Algorithm  string  `json:"algorithm,omitempty" doc:"Algorithm that found the path" example:"label-setting"`
	Exact      bool    `json:"exact" doc:"Whether it is certain that no path is better"`
	Gap        float64 `json:"gap" doc:"If the path is not exact: share by which the value of the best path may be better than that of this one"`
	Elapsed    float64 `json:"elapsed_milliseconds"`
}

// ExplainedPath is the answer to a path request together with the network in which the path was
// searched.
type ExplainedPath struct {
	FoundPath
	Links []SeenLink `json:"links" doc:"All links with the values that the search used"`
}

// SeenLink is a link with the values that a path search used.
type SeenLink struct {
	From      Place   `json:"from"`
	To        Place   `json:"to"`
	Available uint64  `json:"available_bits_per_second" doc:"Bandwidth that the link has left for this request; 0 if its capacity is not known"`
	Delay     float64 `json:"delay_milliseconds,omitempty" doc:"Missing while unknown"`
	Jitter    float64 `json:"jitter_milliseconds,omitempty" doc:"Missing while unknown"`
	Loss      float64 `json:"loss" doc:"0 while unknown"`
	OnPath    bool    `json:"on_path" doc:"Whether the link is part of the path that was found"`
	Out       string  `json:"out,omitempty" doc:"Why the link cannot be used; missing if it can"`
}

func (p *Paths) find(_ context.Context, in *pathInput) (*body[FoundPath], error) {
	from, to, r, err := p.request(in)
	if err != nil {
		return nil, err
	}
	a, err := p.server.core.Topology().Find(from, to, r)
	if errors.Is(err, topology.ErrRequest) {
		return nil, api.Invalid("query", "", err.Error())
	}
	return &body[FoundPath]{foundPath(a, err)}, nil
}

func (p *Paths) explain(_ context.Context, in *pathInput) (*body[ExplainedPath], error) {
	from, to, r, err := p.request(in)
	if err != nil {
		return nil, err
	}
	e, err := p.server.core.Topology().Explain(from, to, r)
	if err != nil {
		return nil, api.Invalid("query", "", err.Error())
	}
	out := ExplainedPath{FoundPath: foundPath(e.Answer, e.Err), Links: make([]SeenLink, len(e.Edges))}
	for i, edge := range e.Edges {
		l := edge.Link
		out.Links[i] = SeenLink{
			From: placeOf(l.From), To: placeOf(l.To), Available: edge.Available,
			Delay: milliseconds(l.Latency), Jitter: milliseconds(l.Jitter), Loss: l.Loss, OnPath: edge.OnPath, Out: edge.Out,
		}
	}
	return &body[ExplainedPath]{out}, nil
}

// request parses the whole input. The error names every parameter that is wrong.
func (p *Paths) request(in *pathInput) (from, to network.PortRef, r topology.Request, err error) {
	from, errFrom := p.server.place("query.from", in.From)
	to, errTo := p.server.place("query.to", in.To)
	objective, err := topology.ParseObjective(in.Objective)
	if err != nil {
		err = api.Invalid("query.objective", in.Objective, err.Error())
	}
	excluded, errExclude := p.excluded(in.Exclude)
	r = topology.Request{
		MinBandwidth: in.Bandwidth, MaxDelay: duration(in.Delay), MaxJitter: duration(in.Jitter), MaxLoss: in.Loss,
		Objective: objective, Limit: duration(in.Limit), Available: p.Available,
	}
	if len(excluded) > 0 {
		r.Exclude = func(l network.Link) string {
			if excluded[l.From] {
				return "by request"
			}
			return ""
		}
	}
	return from, to, r, api.Combine(errFrom, errTo, err, errExclude, numbers(in))
}

// numbers refuses each NaN, which passes the checks of minimum and maximum because every comparison with it
// is false.
func numbers(in *pathInput) error {
	var wrong []api.Field
	for _, f := range []struct {
		location string
		value    float64
	}{{"query.max_delay", in.Delay}, {"query.max_jitter", in.Jitter}, {"query.max_loss", in.Loss}, {"query.limit", in.Limit}} {
		if math.IsNaN(f.value) {
			wrong = append(wrong, api.Field{Location: f.location, Value: "NaN", Want: "want a number"})
		}
	}
	return api.InvalidFields(wrong)
}

func (p *Paths) excluded(texts []string) (map[network.PortRef]bool, error) {
	out := map[network.PortRef]bool{}
	faults := make([]error, 0, len(texts))
	for _, text := range texts {
		at, err := p.server.place("query.exclude", text)
		out[at] = true
		faults = append(faults, err)
	}
	return out, api.Combine(faults...)
}

// duration converts milliseconds to a Duration. It rounds up, so that a bound above zero does not
// become zero, which means no bound.
func duration(milliseconds float64) time.Duration {
	return time.Duration(math.Ceil(milliseconds * float64(time.Millisecond)))
}

func foundPath(a topology.Answer, err error) FoundPath {
	out := FoundPath{Hops: []Hop{}, Elapsed: milliseconds(a.Elapsed)}
	if err != nil {
		out.Reason, out.Undecided = err.Error(), errors.Is(err, topology.ErrUndecided)
		return out
	}
	out.Found, out.Hops = true, pathOf(a.Path).Hops
	out.Delay, out.Jitter, out.Loss, out.Unmeasured = milliseconds(a.Delay), milliseconds(a.Jitter), a.Loss, a.Unmeasured
	out.Algorithm, out.Exact, out.Gap = a.Algorithm, a.Exact, a.Gap
	if a.Width != math.MaxUint64 {
		out.Bandwidth = a.Width
	}
	return out
}
