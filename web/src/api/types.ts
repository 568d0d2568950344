// What the proxy's JSON calls take and answer. `contract.json` has one example of each: the proxy's own tests hold its types to it,
// and svelte-check holds these.

/** A challenge of WebAuthn in JSON, as the browser reads it. */
export type CeremonyJson = Record<string, unknown>;

/** The program that asked: what the proxy saw of it, and what it says of itself. */
export interface Client {
  readonly host_name: string;
  readonly address: string;
  /** RFC 3339. */
  readonly time: string;
}

interface ById {
  readonly id: string;
}

interface Proof extends ById {
  readonly response: CeremonyJson;
}

interface Begun {
  readonly public_key: CeremonyJson;
}

interface Returned {
  /** Where the browser goes next; null where the program waits for its answer elsewhere. */
  readonly redirect: string | null;
}

type Nothing = Record<string, never>;

/** An identity provider that people are sent to. */
export interface Connector {
  readonly name: string;
  readonly title: string;
}

export interface LoginRequest {
  readonly cluster: string;
  readonly state: string;
  readonly client: Client;
  readonly redirect: string;
  readonly methods: { readonly passkey: boolean; readonly password: boolean; readonly sso: readonly Connector[] };
  readonly user: string | null;
  /** The code that the terminal shows is asked for. */
  readonly code: boolean;
  /** Seconds. */
  readonly expires_in: number;
}

export interface ApproveRequest {
  readonly cluster: string;
  readonly user: string;
  readonly purpose: string;
  /** `said`: a machine says so of itself, and no other has checked it. */
  readonly details: readonly { readonly label: string; readonly value: string; readonly said: boolean }[];
  readonly client: Client;
  readonly state: string;
  /** `sso`: where a user who has no factor signs in again. */
  readonly methods: { readonly passkey: boolean; readonly otp: boolean; readonly sso: readonly Connector[] };
  readonly expires_in: number;
}

export interface FactorsRequest {
  readonly cluster: string;
  readonly user: string;
  readonly client: Client;
  readonly state: string;
  readonly expires_in: number;
}

export interface Factor {
  readonly id: string;
  readonly name: string;
  /** `webauthn` or `totp`. */
  readonly kind: string;
  /** RFC 3339. */
  readonly created: string | null;
  readonly last_used: string | null;
  /** Of a passkey: it was synced to other devices at its last use. */
  readonly backed_up: boolean;
  /** When its sign count last did not grow. */
  readonly counter_went_back: string | null;
}

export interface Factors {
  readonly factors: readonly Factor[];
  readonly recovery_codes: number;
}

export interface EnrolRequest {
  readonly cluster: string;
  readonly user: string;
  readonly name: string;
  readonly state: string;
  readonly expires_in: number;
}

export interface InviteRequest {
  readonly cluster: string;
  readonly user: string;
  readonly methods: { readonly passkey: boolean; readonly password: boolean };
  readonly expires_in: number;
}

/** Every call by its path under `/web/`. */
export interface Calls {
  'login/describe': { request: ById; answer: LoginRequest };
  'login/passkey/begin': { request: ById & { code?: string }; answer: Begun };
  'login/passkey/finish': { request: Proof; answer: Returned };
  'login/password': {
    request: ById & { code?: string; user: string; password: string; otp: string };
    answer: Returned;
  };
  'login/sso/begin': {
    request: ById & { code?: string; connector: string; origin: string };
    answer: { readonly redirect: string; readonly binding: string };
  };
  'login/sso/finish': {
    /** `connector`: whose address the browser came back to. */
    request: { connector: string; state: string; code: string; iss: string; error: string; error_description: string; binding: string };
    answer: Returned;
  };
  'login/refuse': { request: ById; answer: Nothing };
  'approve/describe': { request: ById; answer: ApproveRequest };
  'approve/passkey/begin': { request: ById & { code: string }; answer: Begun };
  'approve/passkey/finish': { request: Proof; answer: Nothing };
  'approve/otp': { request: ById & { code: string; otp: string }; answer: Nothing };
  'approve/refuse': { request: ById; answer: Nothing };
  'factors/describe': { request: ById; answer: FactorsRequest };
  'factors/list': { request: ById & { code: string }; answer: Factors };
  'factors/remove/begin': {
    request: ById & { code: string; factor: string };
    /** Id of an approval, which is proven as any other. */
    answer: { readonly approval: string };
  };
  'factors/remove/finish': { request: ById & { code: string; factor: string; approval: string }; answer: Factors };
  'factors/refuse': { request: ById; answer: Nothing };
  'enrol/describe': { request: ById; answer: EnrolRequest };
  'enrol/begin': { request: ById & { code: string }; answer: Begun };
  'enrol/finish': { request: Proof; answer: { readonly name: string } };
  'enrol/refuse': { request: ById; answer: Nothing };
  'invite/describe': { request: { token: string }; answer: InviteRequest };
  'invite/begin': { request: { token: string }; answer: Begun };
  'invite/finish': {
    request: { token: string; name: string; response: CeremonyJson };
    answer: { readonly user: string };
  };
}

export type Name = keyof Calls;
