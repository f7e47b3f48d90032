/** The store's suite over the in-process stores, so that what is proved over them holds over NATS. */
import { createMemoryStores } from '../../actors/runtime/memory/stores.ts';
import { storeConformance } from './store.ts';

storeConformance('memory', () => Promise.resolve({ stores: createMemoryStores(), stop: () => Promise.resolve() }));
