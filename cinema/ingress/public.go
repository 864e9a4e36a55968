package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/tlsconn"
	"github.com/sluice-net/sluice/service/control"
)

// public is where producers publish.
type public struct {
	g         *Gateway
	url       string
	listener  net.Listener
	http      *http.Server
	mux       ice.UDPMux // of all sessions
	api       *webrtc.API
	passwords *passwords
	offers    chan struct{} // places of offers that are being answered
	lines     lograte.Limit
	refusals  lograte.Limit // events
	tasks     *tasks.Group  // what runs for sessions

	mu       sync.Mutex
	sessions map[string]*session
}

// openPublic listens for producers.
func openPublic(g *Gateway) (*public, error) {
	p := &public{
		g: g, passwords: newPasswords(), offers: make(chan struct{}, maxOffers), refusals: lograte.Limit{Burst: 20},
		tasks: tasks.New(), sessions: map[string]*session{},
	}
	l, err := p.listen(g.cfg.Public)
	if err != nil {
		return nil, err
	}
	at := l.Addr().(*net.TCPAddr).AddrPort()
	if p.api, err = newAPI(p.mux, at.Addr()); err != nil {
		_ = l.Close()
		_ = p.mux.Close()
		return nil, fmt.Errorf("WebRTC: %w", err)
	}
	p.serveAt(l, g.cfg.PublicTLS != nil)
	p.url = g.cfg.PublicURL
	if p.url == "" {
		p.url = publicURL(at, g.cfg.Data, g.cfg.PublicTLS != nil)
	}
	return p, nil
}

// listen opens the public address for TCP, and for media by UDP at the same port. Where any
// port will do, one that another program has for UDP is tried again with another.
func (p *public) listen(at netip.AddrPort) (l net.Listener, err error) {
	for tries := 0; ; tries++ {
		if l, err = net.Listen("tcp", at.String()); err != nil {
			return nil, fmt.Errorf("public address: %w", err)
		}
		if p.mux, err = openMux(l.Addr().(*net.TCPAddr).AddrPort()); err == nil {
			return l, nil
		}
		_ = l.Close()
		if at.Port() != 0 || tries == 10 || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("public address, for media: %w", err)
		}
	}
}

// publicURL is how a listener is reached; one at every address is at the data address, too.
func publicURL(at netip.AddrPort, data netip.Addr, encrypted bool) string {
	scheme := "http"
	if encrypted {
		scheme = "https"
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(data, at.Port())
	}
	return scheme + "://" + at.String()
}

// serveAt makes the server, bounded in time and size for whoever connects.
func (p *public) serveAt(l net.Listener, encrypted bool) {
	p.listener = guardedListener{
		listen.New(l, func(err error) { p.lines.Warn(p.g.log, "cannot accept producers for now", "error", err) }),
		&crowd{most: maxConns, mostOfOne: maxSourceConns}, p.g.cfg.Proxies,
	}
	if encrypted {
		c := p.g.cfg.PublicTLS
		c.NextProtos = []string{"http/1.1"}
		p.listener = tlsconn.NewListener(p.listener, c)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /whip/{channel}", p.publish)
	mux.HandleFunc("DELETE /whip/sessions/{id}", p.unpublish)
	p.http = &http.Server{
		Handler:           anyOrigin(mux),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10,
		ErrorLog:       log.New(p.lines.Writer(p.g.log, slog.LevelWarn, "public listener"), "", 0),
	}
}

// anyOrigin lets pages of any site publish: who may is a matter of the password, which no
// browser sends by itself.
func anyOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Methods", "POST, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
		h.Set("Access-Control-Expose-Headers", "Location")
		h.Set("Access-Control-Max-Age", "600")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// run serves until stop.
func (p *public) run(context.Context) {
	if err := p.http.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		p.g.log.Error("no producer is answered any more", "error", err)
	}
}

// stop ends the server; sessions go on until their channels end.
func (p *public) stop() {
	_ = p.http.Close()
	_ = p.listener.Close()
}

// close ends what is left of sessions.
func (p *public) close() {
	p.tasks.Stop()
	_ = p.mux.Close()
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, status int, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// A client that has gone will notice.
	_ = json.NewEncoder(w).Encode(control.Problem{Title: title, Status: status, Detail: detail, Code: codeOf(status)})
}

func codeOf(status int) control.Code {
	switch status {
	case http.StatusNotFound:
		return control.CodeNotFound
	case http.StatusConflict:
		return control.CodeDuplicate
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusTooManyRequests:
		return control.CodeRefused
	case http.StatusServiceUnavailable:
		return control.CodeFull
	case http.StatusInternalServerError:
		return control.CodeInternal
	}
	return control.CodeBadRequest
}
