package ingress

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

const (
	// maxOffer bounds an offer, in bytes.
	maxOffer = 64 << 10
	// maxOffers bounds the offers that are answered at the same time.
	maxOffers = 16
)

// publish answers a producer's offer.
func (p *public) publish(w http.ResponseWriter, r *http.Request) {
	from := p.g.cfg.Proxies.Client(r)
	text, ok := readOffer(w, r)
	if !ok {
		return
	}
	c := p.g.channel(r.PathValue("channel"))
	if c == nil {
		refuse(w, http.StatusNotFound, "no such channel", "this gateway does not have it")
		return
	}
	if !p.permitted(w, r, c, from) {
		return
	}
	select { // not earlier, so that clients that are slow or have no password take none of maxOffers
	case p.offers <- struct{}{}:
		defer func() { <-p.offers }()
	default:
		refuse(w, http.StatusServiceUnavailable, "too many offers at once", "try again")
		return
	}
	s, err := p.newSession(c, from, text, strings.Contains(r.UserAgent(), needsAllLayers))
	switch {
	case errors.Is(err, errPublished):
		c.recordRefusal(from, err)
		refuse(w, http.StatusConflict, "the channel has a producer", err.Error())
		return
	case err != nil:
		c.recordRefusal(from, err)
		refuse(w, http.StatusNotAcceptable, "the offer cannot be taken", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/sdp")
	// The address is relative, because a reverse proxy may have the gateway below a prefix.
	base := ""
	if strings.HasSuffix(r.URL.Path, "/") {
		base = "../"
	}
	w.Header().Set("Location", base+"sessions/"+s.id)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, s.answer) // a client that does not get it does not connect
}

// readOffer returns the offer in the request's body. If the body is invalid, readOffer answers with an
// error and returns false.
func readOffer(w http.ResponseWriter, r *http.Request) (string, bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/sdp" {
		refuse(w, http.StatusUnsupportedMediaType, "not an offer", "want Content-Type: application/sdp")
		return "", false
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxOffer+1))
	if err != nil {
		refuse(w, http.StatusBadRequest, "the offer did not come whole", err.Error())
		return "", false
	}
	if len(b) > maxOffer {
		refuse(w, http.StatusRequestEntityTooLarge, "the offer is too long", "want at most 64 KiB")
		return "", false
	}
	return string(b), true
}

// permitted reports whether a producer may publish the channel with its password. If it may not,
// permitted answers with an error.
func (p *public) permitted(w http.ResponseWriter, r *http.Request, c *channel, from netip.Addr) bool {
	spec := c.currentSpec()
	switch {
	case spec.Source != "":
		refuse(w, http.StatusForbidden, "nobody publishes this channel", "the gateway itself fetches it")
		return false
	case spec.PublishHash == "":
		refuse(w, http.StatusForbidden, "nobody publishes this channel", "it has no password for producers")
		return false
	}
	scheme, password, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a password is needed", "send Authorization: Bearer PASSWORD")
		return false
	}
	err := p.passwords.check(r.Context(), clientaddr.Source(from), spec.PublishHash, strings.TrimSpace(password))
	switch {
	case err == nil:
		return true
	case errors.Is(err, errWrongPassword):
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		refuse(w, http.StatusUnauthorized, "the producer is refused", err.Error())
	case errors.Is(err, errTooManyWrong):
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusTooManyRequests, "the producer is refused", err.Error())
	default:
		refuse(w, http.StatusServiceUnavailable, "the producer is refused", err.Error())
	}
	c.recordRefusal(from, err)
	return false
}

// unpublish ends the session that the request's secret URL identifies.
func (p *public) unpublish(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	s := p.sessions[r.PathValue("id")]
	p.mu.Unlock()
	if s == nil {
		refuse(w, http.StatusNotFound, "no such session", "it has ended, or never was")
		return
	}
	s.end("the producer has ended it")
	<-s.ended
	w.WriteHeader(http.StatusNoContent)
}
