package nodeapi

import (
	"crypto/ed25519"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Options configures a node's control server.
type Options struct {
	Log     *slog.Logger
	Version string
	// Key is the key of the node's name.
	Key ed25519.PrivateKey
	// Report returns the node's load; the server fills in Name and MACs.
	Report func() Report
	// Custody lists the chunks in a storage node; nil for nodes of other kinds. It is not called
	// concurrently.
	Custody func(CustodyQuery) CustodyPage
	Metrics prometheus.Gatherer
}

// Server is a node's control server.
type Server = control.Server[control.Nothing, Report]

// NewServer returns a server that does not serve yet.
func NewServer(o Options) *Server {
	s := control.NewServer[control.Nothing](control.Options[Report]{
		Log: o.Log, Metrics: o.Metrics,
		Status: func() control.Status { return control.Status{Version: o.Version} },
		Live: func() []Report {
			r := o.Report()
			r.Name, r.MACs = record.NameOfOwner(o.Key), localMACs()
			return []Report{r}
		},
	})
	control.Handle(s, "POST /v1/proof", func(_ *http.Request, c Challenge) (p Proof, err error) {
		if len(c.Nonce) != nonceSize {
			return p, control.BadRequest("nonce", "%d bytes: want %d", len(c.Nonce), nonceSize)
		}
		return c.Prove(o.Key), nil
	})
	if o.Custody != nil {
		var turn sync.Mutex // a call is linear in the number of chunks
		control.Handle(s, "GET /v1/custody", func(r *http.Request, _ control.Nothing) (CustodyPage, error) {
			q, err := parseQuery(r.URL.Query())
			if err != nil {
				return CustodyPage{}, err
			}
			turn.Lock()
			defer turn.Unlock()
			if r.Context().Err() != nil {
				return CustodyPage{}, r.Context().Err()
			}
			return o.Custody(q), nil
		})
	}
	return s
}

// values returns the query as URL parameters.
func (q CustodyQuery) values() url.Values {
	v := url.Values{"limit": {strconv.Itoa(q.Limit)}}
	if q.After != (Pair{}) {
		v.Set("after", q.After.String())
	}
	if !q.For.IsZero() {
		v.Set("for", q.For.String())
	}
	return v
}

func parseQuery(v url.Values) (q CustodyQuery, err error) {
	if q.Limit, err = strconv.Atoi(v.Get("limit")); err != nil || q.Limit < 1 || q.Limit > MaxRows {
		return q, control.BadRequest("limit", "%q: want 1 to %d", v.Get("limit"), MaxRows)
	}
	if v.Has("after") {
		if q.After, err = ParsePair(v.Get("after")); err != nil {
			return q, control.BadRequest("after", "%v", err)
		}
	}
	if v.Has("for") {
		if q.For, err = frame.ParseGUID(v.Get("for")); err != nil {
			return q, control.BadRequest("for", "%v", err)
		}
	}
	return q, nil
}

// localMACs returns the Ethernet addresses of this machine, to which its host belongs.
func localMACs() (all []openflow.MAC) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil // without addresses, reports count for no place; later reports may have them
	}
	for _, i := range interfaces {
		if len(i.HardwareAddr) != len(openflow.MAC{}) || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		if mac := openflow.MAC(i.HardwareAddr); len(all) < MaxMACs && !slices.Contains(all, mac) {
			all = append(all, mac)
		}
	}
	return all
}
