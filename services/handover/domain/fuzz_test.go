package domain

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/store/memstore"
)

// FuzzMessage sends bytes with a neighbour's certificate. Whatever they are, the API answers
// without an internal error, and no device of ours moves.
func FuzzMessage(f *testing.F) {
	now := time.Now()
	env := envelopeFor("b", "a", now)
	mac := openflow.MAC{2, 1, 1, 1, 1, 1}
	own := Subject{"a", "car"}
	for kind, m := range map[Kind]any{
		KindHello:    Hello{env},
		KindNotify:   Notify{Envelope: env, Visitor: Visitor{Home: "b", Device: "x", MACs: []openflow.MAC{{2, 5}}, IP: netip.MustParseAddr("10.2.0.1")}, Move: newToken()},
		KindReady:    Ready{Envelope: env, Subject: own, Move: newToken()},
		KindComplete: Complete{Envelope: env, Subject: own, Move: newToken(), Host: "b", Since: now},
		KindQuery:    Query{Envelope: env, MAC: mac},
		KindClaim:    Claim{Envelope: env, Subject: own, Move: newToken(), MAC: mac, Evidence: sign(mac, "guess")},
		KindVerify:   Verify{Envelope: env, Subject: own, Evidence: *sign(mac, "guess")},
		KindWithdraw: Withdraw{Envelope: env, Subject: own},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(kind), b)
	}
	f.Add("notify", []byte(`{"visitor":null}`))
	s, handler := fuzzed(f)
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "b", Organization: []string{pki.Organization}, OrganizationalUnit: []string{string(pki.RoleNeighbour)}}}
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		if !knownKind(kind) {
			return
		}
		r := httptest.NewRequest(http.MethodPost, Path+kind, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.TLS = state
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		h := s.host.(*fakeHost)
		if got := h.placesOf("car"); len(got) != 1 || got[0] != edge {
			t.Fatalf("the device was moved to %v by %s", got, body)
		}
	})
}

func knownKind(kind string) bool {
	for _, k := range []Kind{KindHello, KindNotify, KindReady, KindComplete, KindQuery, KindClaim, KindVerify, KindWithdraw} {
		if string(k) == kind {
			return true
		}
	}
	return false
}

// fuzzed returns a domain a with a device and a neighbour b that does not exist.
func fuzzed(f *testing.F) (*Service, http.Handler) {
	h := newFakeHost("a")
	h.devices["car"] = &fakeDevice{key: "secret", places: []string{edge}, Known: Known{Here: true, Visitor: Visitor{
		Home: "a", Device: "car", MACs: []openflow.MAC{{2, 1, 1, 1, 1, 1}}, IP: netip.MustParseAddr("10.1.0.1"), Signed: true,
	}}}
	s, err := New(Options{
		Self: "a", Host: h, Store: memstore.New(), Log: slog.New(slog.DiscardHandler), Timing: Timing{Window: 24 * time.Hour},
		Emit: func(string, any) {},
		Now:  func() time.Time { return time.Now() },
		Neighbours: []Neighbour{{
			Name: "b", URL: "https://127.0.0.1:1", TLS: &tls.Config{MinVersion: tls.VersionTLS12},
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Peering: network.PortRef{Switch: 1, Port: 2},
		}},
	})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Restore(f.Context()); err != nil {
		f.Fatal(err)
	}
	a := api.New(api.Options{Auth: api.Auth{ClientCerts: true}, Log: slog.New(slog.DiscardHandler)})
	s.Register(a)
	return s, a.Handler()
}

// FuzzReply decodes a neighbour's answer: the result is an error, or a usable value.
func FuzzReply(f *testing.F) {
	f.Add(200, []byte(`{"move":"0123456789abcdef0123456789abcdef","carry":true}`))
	f.Add(200, []byte(`{"known":true,"visitor":{"home":"a","device":"x","macs":["02:00:00:00:00:01"],"ip":"10.0.0.1"},"host":"a"}`))
	f.Add(409, []byte(`{"status":409,"code":"replay","detail":"again"}`))
	f.Add(500, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var a Answer
		err := decodeReply(status, body, &a)
		if r, ok := errors.AsType[*Refusal](err); ok && (!r.Code.known() || len(r.Detail) > 200) {
			t.Fatalf("%+v", r)
		}
		if err == nil && a.Visitor != nil {
			_ = a.Visitor.check()
			_ = a.Visitor.clone().LocalID("b")
			if _, err := json.Marshal(a); err != nil {
				t.Fatal(err)
			}
		}
		var p Prepared
		_ = decodeReply(status, body, &p)
	})
}

// FuzzRecord decodes a record from the store as another version may have left it.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"car","home":"a","device":"car","macs":["02:00:00:00:00:01"],"ip":"10.1.0.1","downstream":"b","host":"b","changed":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"id":"car","home":"a","device":"car","macs":["02:00:00:00:00:01"],"ip":"10.1.0.1","move":{"id":"x","peer":"b"},"outbox":[{"peer":"b","kind":"complete"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := memstore.New()
		defer st.Close()
		if err := st.Put(t.Context(), storePrefix+"car", b); err != nil {
			return
		}
		records, unreadable, err := newRecords("a", st, time.Now).load(t.Context())
		if err != nil || len(records)+len(unreadable) != 1 {
			t.Fatal(records, unreadable, err)
		}
		for _, r := range records {
			c := r.clone()
			_ = c.disposable("a")
			for _, o := range c.Outbox {
				if _, err := json.Marshal(o.message(&c)); err != nil {
					t.Fatal(err)
				}
			}
			c.dropMove("b", "x")
			c.dropDelivered(Unsent{Peer: "b"})
		}
	})
}
