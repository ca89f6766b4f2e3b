// Passkeys: enrolled here, and used to sign what was shown. The server makes every challenge.

import { Refused, request } from "./api.js";

const toBytes = (text) => {
  const padded = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(padded), (c) => c.charCodeAt(0));
};

const toText = (buffer) => {
  let binary = "";
  for (const byte of new Uint8Array(buffer)) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
};

const withIds = (list) => (list ?? []).map((entry) => ({ ...entry, id: toBytes(entry.id) }));

/** Whether this browser can use passkeys at all. */
export const supported = () => typeof PublicKeyCredential === "function" && globalThis.isSecureContext;

/** The passkeys that the server knows for this page; `null` where it knows no passkeys at all. */
export async function list() {
  try {
    const answer = await request("/api/v1/passkeys");
    return answer.passkeys.filter((key) => key.site === location.hostname);
  } catch (error) {
    if (error instanceof Refused && [0, 401, 404, 405, 501].includes(error.status)) return null;
    throw error;
  }
}

/** Makes a passkey and has the server remember it. The code comes from a terminal where Writ runs. */
export async function enrol(code) {
  const begun = await request("/api/v1/passkeys/begin", { method: "POST", body: { code } });
  const options = begun.publicKey ?? begun;
  const made = await navigator.credentials.create({
    publicKey: {
      ...options,
      challenge: toBytes(options.challenge),
      user: { ...options.user, id: toBytes(options.user.id) },
      excludeCredentials: withIds(options.excludeCredentials),
    },
  });
  const credential = {
    id: made.id,
    rawId: toText(made.rawId),
    type: made.type,
    response: {
      clientDataJSON: toText(made.response.clientDataJSON),
      attestationObject: toText(made.response.attestationObject),
      transports: made.response.getTransports?.() ?? [],
    },
  };
  return request("/api/v1/passkeys/finish", { method: "POST", body: { credential } });
}

/** Signs what a card shows: the challenge that comes from the server is a hash of that and of what will be done. */
export async function sign(card, scope = "once") {
  const path = `/api/v1/approvals/${encodeURIComponent(card.ask_id)}/challenge`;
  const begun = await request(path, { method: "POST", body: { shown_hash: card.shown_hash, scope } });
  const options = begun.publicKey ?? begun;
  const signed = await navigator.credentials.get({
    publicKey: {
      ...options,
      challenge: toBytes(options.challenge),
      allowCredentials: withIds(options.allowCredentials),
    },
  });
  return {
    passkey: {
      id: signed.id,
      rawId: toText(signed.rawId),
      type: signed.type,
      response: {
        clientDataJSON: toText(signed.response.clientDataJSON),
        authenticatorData: toText(signed.response.authenticatorData),
        signature: toText(signed.response.signature),
        userHandle: signed.response.userHandle ? toText(signed.response.userHandle) : null,
      },
    },
  };
}
