package cli

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// hostileDPID is the datapath identifier of the first hostile switch. Those of the others
	// follow it.
	hostileDPID = 0xbad
	// maxHostile bounds the number of hostile switches at the same time.
	maxHostile = 1024
)

func (f *labFlags) hostileSwitchCommand() *cobra.Command {
	var (
		limit   time.Duration
		count   int
		victims []string
	)
	kinds := hostile.Kinds()
	var list strings.Builder
	var names []string
	for _, k := range kinds {
		fmt.Fprintf(&list, "\n  %-12s %s", k.Name, k.Does)
		names = append(names, k.Name)
	}
	cmd := &cobra.Command{
		Use:   "hostile-switch KIND",
		Short: "Run a hostile switch against a lab's controller",
		Long: fmt.Sprintf(`Connects a switch to the controller of a lab and attacks it in one way, for a time or
until Ctrl-C. The switch claims the datapath identifier %x. The lab's own switches,
their links and their hosts should not notice it. With --switches several of the kind
connect at once, with identifiers that follow that one. Kinds, of a switch that
%s`, hostileDPID, list.String()),
		Example: "  sluice-lab hostile-switch packets --time 30s\n  sluice-lab hostile-switch packets --switches 64",
		Args:    command.OneOf(names...),
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, k := range kinds {
				names = append(names, k.Name+"\t"+k.Does)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit <= 0 {
				return &command.UsageError{Err: fmt.Errorf("--time %v: want more than nothing, like 30s", limit)}
			}
			if count < 1 || count > maxHostile {
				return &command.UsageError{Err: fmt.Errorf("--switches %d: want 1 to %d", count, maxHostile)}
			}
			hosts, err := parseVictims(victims)
			if err != nil {
				return &command.UsageError{Err: err}
			}
			return f.runHostileSwitch(cmd.Context(), kinds[slices.Index(names, args[0])], hosts, count, limit)
		},
	}
	f.nameFlag(cmd)
	cmd.Flags().DurationVar(&limit, "time", time.Minute, "how long the switch runs")
	cmd.Flags().IntVar(&count, "switches", 1, "number of hostile switches")
	cmd.Flags().StringArrayVar(&victims, "victim", nil, "a host whose addresses it claims, as MAC=IPV4; may be repeated; only for the kind moves")
	return cmd
}

// runHostileSwitch runs count hostile switches of a kind until the time limit.
func (f *labFlags) runHostileSwitch(ctx context.Context, k hostile.Kind, victims []hostile.Host, count int, limit time.Duration) error {
	l, err := f.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addr := l.ControllerAddr().String()
	f.app.Printf("switch %x at %s: it %s", hostileDPID, addr, k.Does)
	if count > 1 {
		f.app.Printf("and so do %d more", count-1)
	}
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			k.Run(ctx, hostile.Target{
				DPID: hostileDPID + openflow.DatapathID(i), Victims: victims,
				Dial: func(ctx context.Context) (net.Conn, error) { return l.Control().DialContext(ctx, "tcp", addr) },
			})
		})
	}
	wg.Wait()
	return nil
}

// parseVictims parses hosts like 02:00:00:00:00:01=10.0.0.1.
func parseVictims(texts []string) (all []hostile.Host, err error) {
	for _, text := range texts {
		mac, addr, found := strings.Cut(text, "=")
		if !found {
			return nil, fmt.Errorf("--victim %q: want MAC=IPV4, like 02:00:00:00:00:01=10.0.0.1", text)
		}
		var h hostile.Host
		if h.MAC, err = openflow.ParseMAC(mac); err != nil {
			return nil, fmt.Errorf("--victim %q: %w", text, err)
		}
		if h.Addr, err = netip.ParseAddr(addr); err != nil || !h.Addr.Is4() {
			return nil, fmt.Errorf("--victim %q: want an IPv4 address after =", text)
		}
		all = append(all, h)
	}
	return all, nil
}
