package doctor

import (
	"context"
	"net/netip"
	"os/exec"

	"github.com/sluice-net/sluice/config"
	cinema "github.com/sluice-net/sluice/services/cinema/cli"
)

// ForIngress checks whether this machine has what the configuration of an ingress gateway needs:
// addresses, certificates and ffmpeg.
func ForIngress(ctx context.Context, c *cinema.Ingress) []Finding {
	out := []Finding{
		listen(ctx, "control.listen", c.Control.Listen), listen(ctx, "public.listen", c.Public.Listen), certificate("control.tls", c.Control.TLS),
		listen(ctx, "data.address", config.Address{AddrPort: netip.AddrPortFrom(c.First(), 0)}), program("ffmpeg", c.FFmpeg),
	}
	if c.Public.TLS.Enabled() {
		out = append(out, certificate("public.tls", c.Public.TLS))
	}
	return about(Ingress, append(out, clock()))
}

// program checks whether the program that reads channels' sources is installed.
func program(check, name string) Finding {
	path, err := exec.LookPath(name)
	if err != nil {
		return Finding{Check: check, Level: Warn, Found: err.Error(), Advice: "only channels that somebody publishes come: apt-get install ffmpeg"}
	}
	return Finding{Check: check, Level: OK, Found: path}
}
