package ingress

import (
	"net/netip"
	"regexp"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// maxCost bounds the cost of a bcrypt hash. A cost that is higher by one doubles the time of a
// comparison.
const maxCost = 12

var channelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// checkChannel validates a channel that the controller has sent for a path, and parses its
// source.
func (g *Gateway) checkChannel(path string, c gatewayapi.Channel) (source, error) {
	switch {
	case !channelName.MatchString(c.Name):
		return source{}, control.BadRequest("name", "%q: want 1 to 63 letters, digits, dots, dashes and underscores, the first and last of them letters or digits", clip(c.Name))
	case c.Name != path:
		return source{}, control.BadRequest("name", "%q, but the path says %q", c.Name, clip(path))
	case c.Number < 1 || c.Number > gatewayapi.MaxNumber:
		return source{}, control.BadRequest("number", "%d: want one from 1 to %d", c.Number, gatewayapi.MaxNumber)
	case c.BitRate < gatewayapi.MinRate || c.BitRate > gatewayapi.MaxRate:
		return source{}, control.BadRequest("bit_rate", "%v: want one from %v to %v", c.BitRate, gatewayapi.MinRate, gatewayapi.MaxRate)
	}
	if err := c.Picture.Validate(); err != nil {
		return source{}, control.BadRequest("picture", "%v", err)
	}
	if why := g.notUnicast(c.To); why != "" {
		return source{}, control.BadRequest("to", "%v: %s", c.To, why)
	}
	if c.PublishHash != "" {
		cost, err := bcrypt.Cost([]byte(c.PublishHash))
		if err != nil {
			return source{}, control.BadRequest("publish_hash", "not of bcrypt: %v", err)
		}
		if cost > maxCost {
			return source{}, control.BadRequest("publish_hash", "cost %d, at most %d", cost, maxCost)
		}
	}
	if c.Source == "" {
		return source{}, nil
	}
	s, err := parseSource(string(c.Source))
	if err != nil {
		return s, control.BadRequest("source", "%v", err)
	}
	return s, nil
}

// checkBurst validates the destination of a burst, which must be the address of another host.
func (g *Gateway) checkBurst(b gatewayapi.Burst) error {
	if why := g.notUnicast(b.To.Addr()); why != "" {
		return control.BadRequest("to", "%v: %s", b.To, why)
	}
	if b.To.Port() < 1024 {
		return control.BadRequest("to", "port %d: want one from 1024 on", b.To.Port())
	}
	return nil
}

// reserved holds addresses that no host has.
var reserved = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("240.0.0.0/4")}

// notUnicast returns why an address cannot be that of another host, or "" if it can.
func (g *Gateway) notUnicast(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "missing"
	case !a.Is4():
		return "want an IPv4 address, as the data address is one"
	case a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return "want one of another host, and not of a group, a link or this machine"
	case a == g.cfg.Data:
		return "that is the gateway's own"
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return "no host has it"
		}
	}
	return ""
}

// clip shortens text of a request to 80 bytes, for use in an answer.
func clip(text string) string { return text[:min(len(text), 80)] }
