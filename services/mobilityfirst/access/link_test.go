package access

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
)

// An interface that opens and then cannot be used is logged once, however often the router tries it
// again, and again when it has worked in between.
func TestInterfaceThatCannotBeUsed(t *testing.T) {
	for name, open := range map[string]func(*ether) *host.Interface{
		"small MTU": func(e *ether) *host.Interface {
			i := e.open(routerMAC)
			i.MTU = minMTU - 1
			return i
		},
		"fails at once": func(e *ether) *host.Interface {
			i := e.open(routerMAC)
			_ = i.Close()
			return i
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log logtest.Log
				e, works, opened := newEther(trouble{}), false, 0
				r, err := New(Options{
					Interfaces: []string{"lan"}, Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}, Socket: "none", Log: log.Logger(),
					Open: func(string) (*host.Interface, error) {
						if opened++; works {
							return e.open(routerMAC), nil
						}
						return open(e), nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				all.Go(func() { r.links[0].run(ctx) })
				failures := func() int { return strings.Count(log.String(), "can't be used") }
				wait := func() {
					pause.For(20*reopenDelay+time.Millisecond, "the router opens the interface again and again")
					synctest.Wait()
				}
				wait()
				if opened < 20 || failures() != 1 {
					t.Errorf("opened %d times, failure logged %d times, want at least 20 and once:\n%s", opened, failures(), &log)
				}
				works = true
				wait()
				e.ports[routerMAC].came <- make([]byte, 64)
				synctest.Wait()
				works = false
				_ = e.ports[routerMAC].Close()
				wait()
				if failures() < 2 || failures() > 3 {
					t.Errorf("failure logged %d times after the interface has worked:\n%s", failures(), &log)
				}
				cancel()
				all.Wait()
			})
		})
	}
}
