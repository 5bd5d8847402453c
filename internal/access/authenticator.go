package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
)

// Authenticator decides by a token who may ask, and for which tenant. A nil one lets everybody
// in. It serves HTTP here; others that listen (for gRPC, say) call Check.
type Authenticator struct {
	// tenants of tokens, by the token's hash: a look-up by it takes as long for a nearly right
	// token as for a wrong one. The tenant is "" where there are no tenants.
	tenants map[[sha256.Size]byte]string
	// separate is whether there are tenants.
	separate bool
	refused  atomic.Uint64
	// readers are those of them that asked for something here.
	readers turnedAway
}

// Bounds of a file of tokens.
const (
	minToken     = 16
	maxToken     = 512
	maxTokens    = 1000
	maxTokenFile = 1 << 20
)

// NewAuthenticator lets in who has one of the tokens. The keys are names of tenants; tokens under
// the key "" belong to none.
func NewAuthenticator(tokens map[string][]string) (*Authenticator, error) {
	a := &Authenticator{tenants: map[[sha256.Size]byte]string{}}
	for tenant, own := range tokens {
		if tenant != "" && !IsTenant(tenant) {
			return nil, fmt.Errorf("tenant %q: want %s", tenant, tenantShape)
		}
		if tenant != "" && len(own) == 0 {
			return nil, fmt.Errorf("tenant %q has no token", tenant)
		}
		for i, token := range own {
			if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, notInToken) {
				return nil, fmt.Errorf("token %d of %q has %d bytes: want %d to %d printable ones without spaces", i+1, tenant, len(token), minToken, maxToken)
			}
			hash := sha256.Sum256([]byte(token))
			if other, ok := a.tenants[hash]; ok {
				return nil, fmt.Errorf("token %d of %q is that of %q already", i+1, tenant, other)
			}
			a.tenants[hash] = tenant
			a.separate = a.separate || tenant != ""
		}
	}
	if n := len(a.tenants); n == 0 || n > maxTokens {
		return nil, fmt.Errorf("%d tokens: want 1 to %d", n, maxTokens)
	}
	return a, nil
}

func notInToken(r rune) bool { return r <= ' ' || r > '~' }

// ReadTokens reads a file with a token on each line. Empty lines and those that begin with # do
// not count.
func ReadTokens(path string) (*Authenticator, error) {
	tokens, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	return NewAuthenticator(map[string][]string{"": tokens})
}

func readTokens(path string) (tokens []string, err error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("reading tokens: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			tokens = append(tokens, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading tokens in %q: %w", path, err)
	}
	// What is wrong with them is told with their own file's name.
	if _, err := NewAuthenticator(map[string][]string{"": tokens}); err != nil {
		return nil, fmt.Errorf("reading tokens in %q: %w", path, err)
	}
	return tokens, nil
}

// ReadTenants reads a YAML file that maps each tenant to a list of its tokens, and, unless it is "", a file of tokens
// of the operator, who belongs to none.
func ReadTenants(path, operator string) (*Authenticator, error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, fmt.Errorf("reading tenants: %w", err)
	}
	tokens := map[string][]string{}
	if err := yaml.Unmarshal(text, &tokens); err != nil {
		return nil, fmt.Errorf("reading tenants in %q: %w", path, err)
	}
	if _, ok := tokens[""]; ok || len(tokens) == 0 {
		return nil, fmt.Errorf(`reading tenants in %q: want lines such as "shop: [TOKEN, TOKEN]"`, path)
	}
	if operator != "" {
		if tokens[""], err = readTokens(operator); err != nil {
			return nil, err
		}
	}
	a, err := NewAuthenticator(tokens)
	if err != nil {
		return nil, fmt.Errorf("reading tenants in %q: %w", path, err)
	}
	return a, nil
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err == nil && len(text) > maxTokenFile {
		err = fmt.Errorf("%q has more than %d bytes", path, maxTokenFile)
	}
	return text, err
}

// isOperator is whether a token that Check found to be of this tenant is the operator's: of none, where there are tenants.
func (a *Authenticator) isOperator(tenant string) bool { return a.separate && tenant == "" }

// Senders is an Authenticator, which is not nil, for those who send: where there are tenants, the operator is none of them.
type Senders struct{ *Authenticator }

// Check is that of Authenticator, and refuses the operator.
func (s Senders) Check(authorization string) (tenant string, ok bool) {
	tenant, ok = s.Authenticator.Check(authorization)
	if ok && s.isOperator(tenant) {
		s.refused.Add(1)
		return "", false
	}
	return tenant, ok
}

// Tenants are the names of all tenants in order; nil where there are none.
func (a *Authenticator) Tenants() []string {
	if a == nil {
		return nil
	}
	names := slices.Collect(maps.Values(a.tenants))
	slices.Sort(names)
	names = slices.Compact(names)
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// Check finds the tenant of a request by its header "Authorization": "Bearer TOKEN", or "Basic
// ..." with the token as the password of any user.
func (a *Authenticator) Check(authorization string) (tenant string, ok bool) {
	if a == nil {
		return "", true
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	token = strings.TrimSpace(token)
	if strings.EqualFold(scheme, "Basic") && len(token) <= 2*maxToken {
		text, _ := base64.StdEncoding.DecodeString(token) // what is none has no token
		_, token, _ = strings.Cut(string(text), ":")
	} else if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	if token != "" && len(token) <= maxToken {
		tenant, ok = a.tenants[sha256.Sum256([]byte(token))]
	}
	if !ok {
		a.refused.Add(1)
	}
	return tenant, ok
}

// Refused counts what Check refused, to senders and readers.
func (a *Authenticator) Refused() uint64 {
	if a == nil {
		return 0
	}
	return a.refused.Load()
}
