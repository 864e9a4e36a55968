package controller

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
)

func TestPathsThroughTheAPI(t *testing.T) {
	cfg := testConfig(t, "memory")
	cfg.Network.Discovery.Interval, cfg.Network.Discovery.Timeout = 200*time.Millisecond, time.Second
	cfg.Network.Switches = map[openflow.DatapathID]config.SwitchIs{
		leftID: {Name: "left", Capacity: map[int]units.Rate{2: 10e6}},
	}
	r := run(t, cfg)
	_, openFlow := r.Addr()
	w := newWired()
	stop := w.connect(t, openFlow[0])
	var links []networkapi.Link
	eventually(t, "both directions of the link are measured", func() bool {
		r.get(t, "/api/v1/network/links", &links)
		return len(links) == 2 && links[0].Latency > 0 && links[1].Latency > 0 && links[0].Capacity > 0
	})
	var hosts []networkapi.Host
	eventually(t, "both hosts are learned", func() bool {
		w.talk(t)
		r.get(t, "/api/v1/network/hosts", &hosts)
		return len(hosts) == 2
	})
	t.Run("find", func(t *testing.T) { findsPaths(t, r) })
	t.Run("explain", func(t *testing.T) { explainsPaths(t, r) })
	t.Run("refuse", func(t *testing.T) { refusesPaths(t, r) })
	stop()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func findsPaths(t *testing.T, r *running) {
	want := []networkapi.Hop{{Switch: "00000000000000a1", In: 1, Out: 2}, {Switch: "00000000000000a2", In: 2, Out: 1}}
	for _, ends := range []string{
		"from=10.0.0.1&to=10.0.0.2", "from=left/1&to=" + rightMAC.String(), "from=left:1&to=00000000000000a2:1", "from=00:00:00:00:00:00:00:a1:1&to=10.0.0.2",
	} {
		var p networkapi.FoundPath
		r.get(t, "/api/v1/path/find?min_bandwidth=9000000&max_delay=10000&"+ends, &p)
		if !p.Found || !slices.Equal(p.Hops, want) || !p.Exact || p.Gap != 0 || p.Bandwidth < 9e6 || p.Bandwidth > 10e6 || p.Delay <= 0 || p.Algorithm == "" {
			t.Errorf("%s: %+v", ends, p)
		}
	}
	for asks, reason := range map[string]string{
		"min_bandwidth=20000000":  "with less available than asked for",
		"max_delay=0.000001":      "the least delay of a path is",
		"exclude=left/2,left/3":   "excluded by the caller",
		"exclude=left/2&limit=10": "excluded by the caller",
	} {
		var p networkapi.FoundPath
		r.get(t, "/api/v1/path/find?from=10.0.0.1&to=10.0.0.2&"+asks, &p)
		if p.Found || len(p.Hops) > 0 || !strings.Contains(p.Reason, reason) {
			t.Errorf("%s: %+v", asks, p)
		}
	}
}

func explainsPaths(t *testing.T, r *running) {
	var p networkapi.ExplainedPath
	r.get(t, "/api/v1/path/explain?from=10.0.0.1&to=10.0.0.2&objective=widest", &p)
	if !p.Found || len(p.Links) != 2 || !p.Links[0].OnPath || p.Links[0].Out != "" || p.Links[1].OnPath || p.Links[1].Out == "" {
		t.Errorf("found: %+v", p)
	}
	r.get(t, "/api/v1/path/explain?from=10.0.0.1&to=10.0.0.2&min_bandwidth=20000000", &p)
	if p.Found || len(p.Links) != 2 || !strings.Contains(p.Links[0].Out, "20000000 asked for") {
		t.Errorf("not found: %+v", p)
	}
}

func refusesPaths(t *testing.T, r *running) {
	for asks, fields := range map[string]string{
		"from=10.0.0.9&to=left/77&exclude=left/99,left/98&max_delay=NaN&max_loss=NaN": "query.from query.to query.exclude query.max_delay query.max_loss",
		"to=10.0.0.2":                                                       "query.from",
		"from=10.0.0.1":                                                     "query.to",
		"from=10.0.0.9&to=10.0.0.2":                                         "query.from",
		"from=10.0.0.1&to=left/77":                                          "query.to",
		"from=10.0.0.1&to=nowhere":                                          "query.to",
		"from=10.0.0.1&to=middle/1":                                         "query.to",
		"from=10.0.0.1&to=left:x":                                           "query.to",
		"from=10.0.0.1&to=10.0.0.2&max_delay=-1":                            "query.max_delay",
		"from=10.0.0.1&to=10.0.0.2&max_jitter=-1":                           "query.max_jitter",
		"from=10.0.0.1&to=10.0.0.2&max_delay=NaN":                           "query.max_delay",
		"from=10.0.0.1&to=10.0.0.2&max_loss=1":                              "query.max_loss",
		"from=10.0.0.1&to=10.0.0.2&max_loss=x":                              "query.max_loss",
		"from=10.0.0.1&to=10.0.0.2&objective=x":                             "query.objective",
		"from=10.0.0.1&to=10.0.0.2&limit=0":                                 "query.limit",
		"from=10.0.0.1&to=10.0.0.2&limit=1e9":                               "query.limit",
		"from=10.0.0.1&to=10.0.0.2&exclude=x":                               "query.exclude",
		"from=10.0.0.1&to=10.0.0.2&min_bandwidth=" + url.QueryEscape("10M"): "query.min_bandwidth",
	} {
		for _, operation := range []string{"find", "explain"} {
			status, _, text := r.ask(t, http.MethodGet, "/api/v1/path/"+operation+"?"+asks, "")
			missing := func(field string) bool { return !strings.Contains(text, field) }
			if status != http.StatusUnprocessableEntity && status != http.StatusNotFound || slices.ContainsFunc(strings.Fields(fields), missing) {
				t.Errorf("%s?%s: %d %s", operation, asks, status, text)
			}
		}
	}
}
