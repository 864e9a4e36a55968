package nodeapi

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// proofPurpose separates these signatures from all others that a key makes.
const proofPurpose = "sluice: a node has this name, 1\x00"

// nonceSize is the number of random bytes in a challenge.
const nonceSize = 32

// Challenge is a random value that a node has to sign. A node answers only its controller.
type Challenge struct {
	Nonce []byte `json:"nonce"`
}

// NewChallenge returns a new challenge.
func NewChallenge() Challenge {
	c := Challenge{make([]byte, nonceSize)}
	_, _ = rand.Read(c.Nonce) // rand.Read never returns an error
	return c
}

func (c *Challenge) signed() []byte { return append([]byte(proofPurpose), c.Nonce...) }

// Proof is a challenge that the owner of a name has signed.
type Proof struct {
	Key       []byte `json:"key"` // Ed25519
	Signature []byte `json:"signature"`
}

// Prove signs the challenge with the key of a name.
func (c *Challenge) Prove(key ed25519.PrivateKey) Proof {
	return Proof{Key: key.Public().(ed25519.PublicKey), Signature: ed25519.Sign(key, c.signed())}
}

// Verify checks that a proof answers the challenge, and returns the proven name. The error wraps
// record.ErrSignature.
func (c *Challenge) Verify(p Proof) (name frame.GUID, err error) {
	if len(p.Key) != ed25519.PublicKeySize || !ed25519.Verify(p.Key, c.signed(), p.Signature) {
		return name, fmt.Errorf("proof of a node's name: %w", record.ErrSignature)
	}
	return record.NameOf(p.Key), nil
}
