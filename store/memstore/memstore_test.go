package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
	"github.com/sluice-net/sluice/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memstore.New() })
}
