package cli

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// writeLabStatus prints the tables of "lab status".
func writeLabStatus(w io.Writer, st lab.Status) {
	if len(st.Controllers) > 0 {
		fmt.Fprintln(w, "CONTROLLER\tLISTENS AT\t(in the control network: sluice-lab exec ctl -- ...)")
		for _, c := range st.Controllers {
			fmt.Fprintf(w, "%s\t%s\t\n", c.Name, c.Address)
		}
		fmt.Fprintln(w)
	}
	if len(st.Switches) > 0 {
		fmt.Fprintln(w, "SWITCH\tDPID\tCONTROL\tSTATE")
		for _, s := range st.Switches {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.DPID, s.Control, switchState(s))
		}
		fmt.Fprintln(w)
	}
	if len(st.Hosts) > 0 {
		fmt.Fprintln(w, "HOST\tADDRESSES\tCONTROL\tPROCESSES")
		for _, h := range st.Hosts {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\n", h.Name, addressList(h.Addresses), validAddr(h.Control), h.Processes)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "LINK\tFROM\tTO\tPROPERTIES\tDELIVERED\tLOST\tDROPPED\tQUEUE")
	for _, k := range st.Links {
		writeLabLink(w, k)
	}
}

func writeLabLink(w io.Writer, k lab.LinkStatus) {
	up := ""
	if !k.Up {
		up = "DOWN, "
	}
	if k.State == nil {
		fmt.Fprintf(w, "%s\t%s\t%s\t%scable, MTU %d\t\t\t\t\n", k.Name, k.A, k.B, up, k.MTU)
		return
	}
	direction := func(from, to string, d delayline.DirectionState) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s%s\t%s\t%d\t%d\t%s\n", k.Name, from, to, up, linkProperties(d.Params),
			units.FormatAmount(d.Stats.DeliveredBytes), d.Stats.Lost, d.Stats.Dropped, units.FormatAmount(uint64(d.Stats.QueueBytes)))
	}
	direction(k.A, k.B, k.State.AtoB)
	direction(k.B, k.A, k.State.BtoA)
}

func switchState(s lab.SwitchStatus) string {
	switch {
	case !s.Running:
		return "not running"
	case s.Connected:
		return "connected to its controller"
	}
	return "running, no controller"
}

func linkProperties(p delayline.Params) string {
	parts := []string{"unlimited"}
	if p.Rate > 0 {
		parts[0] = units.FormatRate(p.Rate)
	}
	if p.Delay > 0 {
		parts = append(parts, p.Delay.String())
	}
	if p.Jitter > 0 {
		parts = append(parts, "±"+p.Jitter.String())
	}
	if p.Loss > 0 {
		parts = append(parts, units.FormatShare(p.Loss)+" loss")
	}
	return strings.Join(parts, ", ")
}

func addressList(all []netip.Prefix) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}

func validAddr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
