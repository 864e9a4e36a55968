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
	"github.com/sluice-net/sluice/kit/control"
)

// public is the server for producers that publish by WHIP.
type public struct {
	g          *Gateway
	url        string
	listener   net.Listener
	http       *http.Server
	mux        ice.UDPMux       // UDP port of all sessions
	external   []netip.AddrPort // addresses that answers name in the place of the port's own; may be empty
	api        *webrtc.API
	passwords  *passwordChecker
	offers     chan struct{} // holds one element for each offer in progress
	logLimiter lograte.Limit
	tasks      *tasks.Group // goroutines of sessions

	mu       sync.Mutex
	sessions map[string]*session
}

// openPublic starts to listen for producers.
func openPublic(g *Gateway) (*public, error) {
	p := &public{
		g: g, passwords: newPasswordChecker(), offers: make(chan struct{}, maxOffers),
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
	for _, a := range g.cfg.ICE {
		p.external = append(p.external, netip.AddrPortFrom(a, at.Port()))
	}
	p.serveAt(l, g.cfg.PublicTLS != nil)
	p.url = g.cfg.PublicURL
	if p.url == "" {
		p.url = publicURL(at, g.cfg.Data, g.cfg.PublicTLS != nil)
	}
	return p, nil
}

// listen opens the public address for TCP, and the same port for media by UDP. If the address leaves
// the choice of the port to the kernel, and another program uses the UDP port, it tries another port.
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

// publicURL returns the URL of a listener. For a listener on all addresses, the URL names the data
// address.
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

// serveAt creates the HTTP server for a listener. It bounds the connections of all clients, and the time
// and the size of their requests.
func (p *public) serveAt(l net.Listener, encrypted bool) {
	p.listener = limitedListener{
		listen.New(l, func(err error) { p.logLimiter.Warn(p.g.log, "cannot accept producers for now", "error", err) }),
		&connLimiter{most: maxConns, mostPerSource: maxSourceConns}, p.g.cfg.Proxies,
	}
	if encrypted {
		c := p.g.cfg.PublicTLS
		c.NextProtos = []string{"http/1.1"}
		p.listener = tlsconn.NewListener(p.listener, c)
	}
	mux := http.NewServeMux()
	for _, end := range []string{"", "/{$}"} { // programs and people append a slash
		mux.HandleFunc("POST /whip/{channel}"+end, p.publish)
		mux.HandleFunc("DELETE /whip/sessions/{id}"+end, p.unpublish)
	}
	p.http = &http.Server{
		Handler:           anyOrigin(mux),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10,
		ErrorLog:       log.New(p.logLimiter.Writer(p.g.log, slog.LevelWarn, "public listener"), "", 0),
	}
}

// anyOrigin permits pages of any site to publish. This is safe because a password decides who may
// publish, and browsers never send a password on their own.
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

// run serves producers until stop is called. It ignores the context.
func (p *public) run(context.Context) {
	if err := p.http.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		p.g.log.Error("no producer is answered any more", "error", err)
	}
}

// stop stops the server. Sessions continue until their channels end.
func (p *public) stop() {
	_ = p.http.Close()
	_ = p.listener.Close()
}

// close ends the remaining sessions.
func (p *public) close() {
	p.tasks.Stop()
	_ = p.mux.Close()
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, status int, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// An error means that the client has gone.
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
