/** The person's organizations, and making a new one. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { useAction, useDesk, type Problem } from './desk.ts';
import { Field, Form } from './form.tsx';
import { follow, hrefOf } from './place.ts';
import { day, readCreated, type Listed } from './resources.ts';
import { slugOf } from './rights.ts';

/** A taken address is about the slug, whatever words the server has for it. */
const atSlug = (problem: Problem): Problem =>
  (problem.code === 'conflict' ? { ...problem, field: 'slug', message: 'This address is taken. Choose another.' }
    : problem.code === 'validation_error' && problem.field === 'slug' ? { ...problem, message: '3 to 32 of a-z, 0-9 and hyphen; it starts and ends with a letter or digit, and some words are reserved.' }
      : problem);

const Create = (): VNode => {
  const desk = useDesk();
  const action = useAction(atSlug);
  const { problem } = action;
  const [name, setName] = useState('');
  const [slug, setSlug] = useState<string>();
  const address = slug ?? slugOf(name);
  const create = (): void => {
    void action.run(async () => {
      const made = await desk.api.send('POST', '/api/organization', { name, slug: address }, readCreated);
      await desk.refresh();
      desk.say(`${made.name} was created`);
      desk.go({ view: 'members', org: made.id });
    });
  };
  return (
    <section class="card" aria-labelledby="create">
      <h2 id="create">New organization</h2>
      <Form label="New organization" submit="Create organization" action={action} fields={['name', 'slug']} onSubmit={create}>
        <Field label="Name" name="name" value={name} onInput={setName} problem={problem} required maxLength={128} autocomplete="off" />
        <Field
          label="Address" name="slug" value={address} onInput={setSlug} problem={problem} required maxLength={64} autocomplete="off" spellcheck={false}
          hint="3 to 32 of a-z, 0-9 and hyphen. It cannot be changed later."
        />
      </Form>
    </section>
  );
};

export const Organizations = ({ organizations }: { organizations: readonly Listed[] }): VNode => {
  const desk = useDesk();
  return (
    <>
      <section class="card" aria-labelledby="yours">
        <h2 id="yours">Your organizations</h2>
        {organizations.length === 0 ? <p class="hint">You are in no organization yet. Create one, or open the link of an invitation.</p> : (
          <ul class="rows">
            {organizations.map(({ id, name, slug, plan, role, memberCount, createdAt }) => (
              <li key={id}>
                <div class="what">
                  <a href={hrefOf({ view: 'members', org: id })} onClick={(event) => { follow(event, () => { desk.go({ view: 'members', org: id }); }); }}><strong>{name}</strong></a>
                  <span class="hint">{slug} · {plan} · {memberCount === 1 ? '1 member' : `${memberCount} members`} · since {day(createdAt)}</span>
                </div>
                <span class="tag">{role}</span>
              </li>
            ))}
          </ul>
        )}
      </section>
      <Create />
    </>
  );
};
