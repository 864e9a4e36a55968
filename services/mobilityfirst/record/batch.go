package record

import (
	"time"

	"github.com/hdevalence/ed25519consensus"
)

// VerifyBatch verifies many records like Record.Verify, in about half the time per record unless
// one of them is forged. It follows the rules of ZIP 215, and so accepts some signatures that
// Verify does not; only the owner of the name can make these.
func VerifyBatch(all []*Record, now time.Time) []error {
	errs := make([]error, len(all))
	batch := ed25519consensus.NewPreallocatedBatchVerifier(len(all))
	count := 0
	for i, r := range all {
		if errs[i] = r.checkValid(now); errs[i] == nil {
			batch.Add(r.Key[:], r.signed(), r.Signature[:])
			count++
		}
	}
	if count > 1 && batch.Verify() {
		return errs
	}
	for i, r := range all {
		if errs[i] == nil {
			errs[i] = r.verifySignature()
		}
	}
	return errs
}
